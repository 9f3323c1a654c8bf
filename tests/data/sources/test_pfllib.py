"""PFLlib's folders, written as its `save_file` writes them."""

import json
import os

import numpy as np
import pytest

from pfljax.data import federate, load

TEXTS = np.array([([4, 2, 0], 2), ([7, 0, 0], 1)], object)  # as of AG News
SIZES = {"train": [5, 3], "test": [2, 1]}


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.fixture
def folder(tmp_path):
    config = {"num_clients": 2, "num_classes": 4, "non_iid": True, "partition": "pat"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    for part, sizes in SIZES.items():
        (tmp_path / part).mkdir()
        for client, size in enumerate(sizes):
            x = rng.normal(size=(size, 3, 6, 5)).astype(np.float32)
            data = {"x": x, "y": np.arange(size) % 3}
            np.savez_compressed(tmp_path / part / f"{client}.npz", data=data)
    return tmp_path


def test_clients_have_the_examples_of_their_files(folder):
    arrays = load("pfllib", path=str(folder))
    assert arrays.num_classes == 4
    found = federate(arrays, "natural", num_clients=None, seed=0, validation=0.0)
    for part, sizes in SIZES.items():
        spans = found.parts[part]
        for client, size in enumerate(sizes):
            file = folder / part / f"{client}.npz"
            given = np.load(file, allow_pickle=True)["data"].item()
            at = int(spans.offset[client])
            assert int(spans.size[client]) == size
            order = np.sort(found.index[at : at + size])
            x = np.moveaxis(given["x"], 1, -1)
            np.testing.assert_array_equal(arrays.x[order], x)
            np.testing.assert_array_equal(arrays.y[order], given["y"])


def test_a_pickle_that_runs_code_is_refused(folder):
    data = {"x": Evil(), "y": np.zeros(2)}
    np.savez_compressed(folder / "test" / "1.npz", data=data)
    with pytest.raises(ValueError, match=r"1.npz cannot be read .*system, and could"):
        load("pfllib", path=str(folder))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "has no config.json; expected the"),
        (lambda f: (f / "test/1.npz").unlink(), "1.npz is missing, one of 2 clients"),
        (lambda f: (f / "config.json").write_text("{}"), r"cannot be read .*num_clien"),
        (
            lambda f: np.savez(f / "test/1.npz", x=[1]),
            r"1.npz cannot be read .*data.np",
        ),
        (
            lambda f: np.savez(f / "test/1.npz", data={"x": [[1.0]], "y": []}),
            "it has 1 x and 0 y",
        ),
        (
            lambda f: np.savez(f / "test/1.npz", data={"x": TEXTS, "y": [0, 1]}),
            "its x are texts, .* write the tokens",
        ),
    ],
)
def test_another_layout_is_refused(folder, wrong, message):
    wrong(folder)
    with pytest.raises(ValueError, match=message):
        load("pfllib", path=str(folder))
