"""A file is whole or as it was, and the system's refusals are one line."""

import os

import pytest

import tiny
from pfljax.runtime import files
from pfljax.runtime.files import FileError


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


def test_a_file_that_is_too_large_is_told(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    told = pytest.raises(FileError, match=r"cannot write to .* \(File too large\)")
    with told, tiny.files_of(100):
        files.write_text(path, "x" * 1000)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_no_room_says_what_to_do(tmp_path):
    with (
        pytest.raises(FileError, match="make room on the disk"),
        files.told(tmp_path),
        open("/dev/full", "w") as file,
    ):
        file.write("x")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot write to .*inner \(Not a dir"):
        files.make_folder(tmp_path / "file" / "inner")


def test_links_and_pipes_are_odd(tmp_path):
    assert files.odd_entry(tmp_path) is None
    (tmp_path / "a").write_text("")
    (tmp_path / "b").mkdir()
    assert files.odd_entry(tmp_path) is None
    (tmp_path / "c").symlink_to(tmp_path / "a")
    assert files.odd_entry(tmp_path) == (
        f"{tmp_path}/c is a symbolic link, not a file of this folder; remove it"
    )


def test_links_of_another_program_are_its_own(tmp_path):
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "log").symlink_to(tmp_path)
    assert files.odd_entry(tmp_path, ("wandb",)) is None
    (tmp_path / "other").mkdir()
    (tmp_path / "wandb").rename(tmp_path / "other" / "wandb")
    assert files.odd_entry(tmp_path, ("wandb",)) is not None
    (tmp_path / "wandb").symlink_to(tmp_path / "other")
    assert files.odd_entry(tmp_path / "wandb", ()) is not None
