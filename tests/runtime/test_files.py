"""A file is whole or as it was, and the system's refusals are one line."""

import os

import pytest

from pfljax.runtime import files


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    with files.whole(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_error_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    with pytest.raises(TypeError), files.whole(path) as part:
        part.write_text(b"no text")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]
