"""HDF5 files in TensorFlow Federated's layout."""

import importlib.util

import numpy as np
import pytest

from pfljax.data import federate, load


@pytest.fixture(scope="module")
def h5py():
    return pytest.importorskip("h5py")


@pytest.fixture
def files(tmp_path, h5py):
    """EMNIST of two writers, of 4 and 2 training examples and 1 test example each."""

    def write(name, sizes, first=0):
        with h5py.File(tmp_path / name, "w") as file:
            for client, size in sizes.items():
                group = file.create_group(f"examples/{client}")
                value = first + np.arange(size, dtype=np.float32)
                group["pixels"] = value[:, None, None] * np.ones((3, 3), np.float32)
                group["label"] = np.arange(size)[:, None] % 2  # CIFAR-100 has [n, 1]
        return str(tmp_path / name)

    train = write("fed_emnist_train.h5", {"f0_a": 4, "f1_b": 2})
    return {
        "path": train,
        "test": write("fed_emnist_test.h5", {"f0_a": 1, "f1_b": 1}, 9),
    }


def test_groups_are_clients_and_the_files_are_splits(files):
    arrays = load("hdf5", **files)
    assert arrays.x.shape == (8, 3, 3, 1)
    assert arrays.x[:, 1, 2, 0].tolist() == [0, 1, 2, 3, 0, 1, 9, 9]
    assert arrays.y.tolist() == [0, 1, 0, 1, 0, 1, 0, 0]
    found = federate(arrays, "natural", num_clients=None, seed=0, validation=0.0)
    assert found.manifest["client_names"] == ["f0_a", "f1_b"]
    assert found.train.size.tolist() == [4, 2]
    assert found.test.size.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "none.h5"}, "no file 'none.h5'"),
        ({"test": "none.h5"}, "no file 'none.h5'"),
        ({"x": "image"}, "'f0_a' has no column 'image'; it has label, pixels"),
        ({"path": __file__}, "test_hdf5.py cannot be read"),
    ],
)
def test_other_files_are_refused(files, options, message):
    with pytest.raises(ValueError, match=message):
        load("hdf5", **files | options)


def test_clients_of_unequal_columns_are_refused(files, h5py):
    with h5py.File(files["path"], "a") as file:
        del file["examples/f1_b/label"]
        file["examples/f1_b/label"] = [0, 1, 0]
    with pytest.raises(ValueError, match="'f1_b' has 2 x, 3 labels"):
        load("hdf5", **files)


def test_a_missing_h5py_is_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'pfljax\[hdf5\]'"):
        load("hdf5", path="fed_emnist_train.h5")
