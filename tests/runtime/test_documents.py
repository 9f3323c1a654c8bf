"""JSON objects in files: what is read is what was written, or one line says why not."""

import pytest

from pfljax.runtime import documents
from pfljax.runtime.files import FileError

CONTENT = {"width": 3, "names": ("a", "é"), "nested": {"share": 0.1, "none": None}}


def test_what_is_written_comes_back(tmp_path):
    file = tmp_path / "a.json"
    documents.write(file, CONTENT)
    assert documents.read(file) == CONTENT | {"names": ["a", "é"]}


def test_nan_is_not_written(tmp_path):
    file = tmp_path / "a.json"
    with pytest.raises(ValueError, match="not JSON compliant"):
        documents.write(file, {"loss": [0.5, float("nan")]})
    assert not file.exists()


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"\xff"])
def test_what_is_no_object_is_one_line(tmp_path, content):
    file = tmp_path / "a.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(FileError, match=r"a\.json is missing or damaged \("):
        documents.read(file)
