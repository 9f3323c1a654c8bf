"""A run goes on with the very examples that it was begun on, or not at all."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tiny
from pfljax.data import federate, from_arrays
from pfljax.runs import partition
from pfljax.runs.folder import FolderError
from pfljax.simulate import loop, width
from pfljax.simulate import run as simulate

RNG = np.random.default_rng(0)
X, Y = RNG.random((60, 4), np.float32), np.arange(60) % 3
SETTINGS = tiny.TINY.replace(algorithm="fedavg", momentum=0.0)


@pytest.fixture
def described(monkeypatch):
    """Runs get as far as their folder is described, and compile nothing."""

    def stop(run):
        run.describe()
        raise LookupError

    monkeypatch.setattr(loop, "restore", stop)
    # To know what a round needs it is compiled.
    monkeypatch.setattr(width, "bytes_needed", lambda sim, federation: 0)


def begin(job, federation=None):
    with pytest.raises(LookupError):
        simulate.run(job, federation, quiet=True, report=False)


def made(**options):
    arrays = from_arrays(X, Y, shift=0.5, scale=2.0)
    return federate(arrays, "iid", num_clients=6, seed=0, public=0.1, **options)


def over(federation, name="train", **changes):
    """The federation over a pool (or public examples) with these changes."""
    if name == "public":
        examples = federation.public.examples._replace(**changes)
        return replace(federation, public=federation.public._replace(examples=examples))
    examples = federation.train.examples._replace(**changes)
    parts = {
        k: part._replace(examples=examples) for k, part in federation.parts.items()
    }
    return replace(federation, **parts)


def one_changed(values):
    """The array with another last value."""
    changed = values.copy()
    changed.reshape(-1)[-1] = 1 - changed.reshape(-1)[-1]
    return changed


def swapped(federation):
    return replace(federation, train=federation.test, test=federation.train)


def shorter(federation):
    """The last client tests on an example less."""
    size = federation.test.size.copy()
    size[-1] -= 1
    return replace(federation, test=federation.test._replace(size=size))


FAST = ("x", "scale", "test")
OTHERS = {
    "x": lambda f: over(f, x=one_changed(f.train.examples.x)),
    "y": lambda f: over(f, y=one_changed(f.train.examples.y) % 3),
    "scale": lambda f: replace(f, scale=3.0),
    "scale-by-channel": lambda f: replace(f, scale=np.float32([2, 2, 2, 2.5])),
    "shift": lambda f: replace(f, shift=0.25),
    "swap": swapped,
    "test": shorter,
    "public-x": lambda f: over(f, "public", x=one_changed(f.public.examples.x)),
    "public-y": lambda f: over(f, "public", y=one_changed(f.public.examples.y) % 3),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
        for name in OTHERS
    ],
)
def test_a_federation_of_ones_own_is_the_same_or_refused(name, tmp_path, described):
    job = SETTINGS.replace(out=str(tmp_path))
    federation = made(test=0.4, validation=0.1)
    begin(job, federation)
    begin(job, made(test=0.4, validation=0.1))
    with pytest.raises(FolderError, match="was started on other data; choose another"):
        simulate.run(job, OTHERS[name](federation), quiet=True)


@pytest.mark.parametrize("unseen", [0.0, 0.4])
def test_newcomers_spans_are_held_to_as_well(unseen):
    def manifest(federation):
        if not unseen:
            return partition.manifest(federation, None, True)
        return partition.manifest(*federation.hold_out(unseen, 0), True)

    assert manifest(made()) == manifest(made())
    assert manifest(swapped(made()))["spans_crc32"] != manifest(made())["spans_crc32"]


def npz(folder, x):
    np.savez(folder / "d.npz", x=x, y=Y)
    return {"dataset": f"npz:path={folder}/d.npz", "partition": "iid"}


def leaf(folder, x):
    for part in ("train", "test"):
        (folder / "d" / part).mkdir(parents=True, exist_ok=True)
        examples = {str(k): {"x": x[k::6].tolist(), "y": [0, 1] * 5} for k in range(6)}
        content = {"users": list(examples), "user_data": examples}
        (folder / "d" / part / "all.json").write_text(json.dumps(content))
    return {"dataset": f"leaf:path={folder}/d", "partition": "natural"}


@pytest.mark.parametrize("write", [npz, leaf])
def test_files_of_ones_own_are_the_same_or_refused(write, tmp_path, described):
    job = SETTINGS.replace(out=str(tmp_path / "run"), **write(tmp_path, X))
    begin(job)
    begin(job)
    write(tmp_path, one_changed(X))
    with pytest.raises(FolderError, match="was started on other data"):
        simulate.run(job, quiet=True)


def test_published_data_sets_are_known_by_name():
    arrays = from_arrays(X, Y, source="Somebody 2020")
    found = federate(arrays, "iid", num_clients=6, seed=0)
    assert not [
        name for name in partition.manifest(found, None, False) if "crc32" in name
    ]
    assert "x_crc32" in partition.manifest(found, None, True)
