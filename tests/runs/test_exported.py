"""Files of exported models: their formats, and what is wrong with them."""

import sys

import numpy as np
import pytest

from pfljax.runs import exported
from pfljax.runtime.files import FileError

ARRAYS = {
    "body/kernel": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "step": np.int32(3),
}


def test_safetensors_keep_values_and_shapes_of_any_layout(tmp_path):
    pytest.importorskip("safetensors")
    exported.write_arrays(tmp_path / "a.safetensors", ARRAYS)
    found = exported.read_arrays(tmp_path / "a.safetensors")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_a_damaged_file_is_refused(tmp_path):
    pytest.importorskip("safetensors")
    (tmp_path / "a.safetensors").write_bytes(b"none")
    with pytest.raises(FileError, match="missing or damaged"):
        exported.load_params(tmp_path / "a.safetensors")


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    for module in ("safetensors", "safetensors.numpy"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"run pip install 'pfljax\[safetensors\]'"):
        exported.write_arrays(tmp_path / "a.safetensors", ARRAYS)
