"""Partitions in files."""

import json

import numpy as np
import pytest

from pfljax.data import federate, from_arrays, from_indices

LISTS = {"2": [7, 1, 4], "10": [0, 9], "3": [2]}
IN_ORDER = [LISTS[name] for name in ("2", "3", "10")]


# A list of lists, NIID-Bench's and FedLab's dict of a client's rows, and tables.
KINDS = ["json of lists", "json", "npz", "csv"]


def write(folder, kind):
    file = folder / f"clients.{kind.partition(' ')[0]}"
    if kind == "json of lists":
        file.write_text(json.dumps(IN_ORDER))
    elif kind == "json":
        file.write_text(json.dumps(LISTS))
    elif kind == "npz":
        np.savez(file, **{name: np.array(rows) for name, rows in LISTS.items()})
    elif kind == "npy":  # as many examples for each client
        np.save(file, np.array([[7, 1], [0, 9]]))
    else:
        rows = [f"{name},{row}" for name, each in LISTS.items() for row in each]
        file.write_text("\n".join(["client,index", *rows]))
    return file


@pytest.fixture
def arrays():
    official = np.arange(12) % 6 == 0  # examples 0 and 6 are for testing
    return from_arrays(np.ones((12, 2)), np.arange(12) % 2, official=official)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("examples", ["train", "all"])
def test_a_file_deals_as_its_lists(arrays, tmp_path, kind, examples):
    options = {"num_clients": None, "seed": 0, "examples": examples}
    found = federate(arrays, f"file:path={write(tmp_path, kind)}", **options)
    dealt = np.flatnonzero(arrays.official == 0) if examples == "train" else range(12)
    lists = [[int(dealt[row]) for row in rows] for rows in IN_ORDER]
    expected = federate(arrays, from_indices(dict(enumerate(lists))), **options)
    assert found.manifest["sha256"] == expected.manifest["sha256"]
    names = None if kind == "json of lists" else [*map(str, sorted(map(int, LISTS)))]
    assert found.manifest.get("client_names") == names


def test_rows_of_an_array_are_clients(arrays, tmp_path):
    path = write(tmp_path, "npy")
    found = federate(arrays, f"file:path={path}", num_clients=None, seed=0, test=0.5)
    assert (found.train.size + found.test.size).tolist() == [2, 2]


@pytest.mark.parametrize("save", [np.save, np.savez])
@pytest.mark.parametrize("kind", ["dict", "lists"])
def test_arrays_of_objects_are_refused_as_pickles(arrays, tmp_path, save, kind):
    content = np.empty(3, object)
    content[:] = IN_ORDER
    path = tmp_path / f"map.{'npy' if save is np.save else 'npz'}"
    save(path, LISTS if kind == "dict" else content)
    with pytest.raises(ValueError, match=r"is a pickle, .* json\.dump"):
        federate(arrays, f"file:path={path}", num_clients=None, seed=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.pkl", "", "c.pkl is a pickle, .* json.dump"),
        ("c.json", "[[0, 1], [1]]", "c.json cannot be read .*to two clients"),
        ("c.json", "[[0], [10]]", "outside of 0 .. 9"),
        ("c.json", '{"a": 3}', "client a are int64.*expected integers"),
        ("c.json", "{}", "expected one list for each client"),
        ("c.csv", "user,row", "c.csv cannot be read"),
        ("none.json", None, "no file .*none.json'; expected JSON"),
    ],
)
def test_what_is_no_partition_is_refused(arrays, tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        federate(arrays, f"file:path={tmp_path / name}", num_clients=None, seed=0)
