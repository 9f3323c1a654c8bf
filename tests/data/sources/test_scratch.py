"""Folders to write in: nothing is left of them, even after a kill."""

import os
import signal
import subprocess
import sys

import pytest

from pfljax.data.sources import cache, scratch
from pfljax.runtime.files import FileError


def test_a_folder_to_write_in_leaves_nothing(tmp_path):
    with scratch.scratch(tmp_path / "home") as own:
        (own / "half").write_text("")
    assert not list((tmp_path / "home").iterdir())
    with pytest.raises(LookupError), scratch.scratch(tmp_path) as own:
        raise LookupError
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(
            FileError, match=r"cannot write to .*file.*PFLJAX_DATA_DIR to an"
        ),
        scratch.scratch(tmp_path / "file"),
    ):
        pass


def test_a_cache_whose_name_is_no_text_is_refused(monkeypatch):
    monkeypatch.setenv("PFLJAX_DATA_DIR", "\udcff")
    with pytest.raises(ValueError, match=r"PFLJAX_DATA_DIR is .*; expected .* UTF-8"):
        cache.folder()


KILLED = """
import sys, time
from pathlib import Path
from pfljax.data.sources.scratch import scratch

with scratch(Path(sys.argv[1])) as own:
    (own / "half").write_bytes(bytes(1000))
    print(own, flush=True)
    time.sleep(100)
"""


def test_what_a_kill_left_is_removed_and_what_is_in_use_is_not(tmp_path):
    stranger = tmp_path / "tmpabcdefgh"
    stranger.mkdir()
    program = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    left = program.stdout.readline().strip()
    long_ago = 1_000_000_000
    os.utime(left, (long_ago, long_ago))
    with scratch.scratch(tmp_path):
        assert os.path.exists(f"{left}/half")  # its program is at work
    program.send_signal(signal.SIGKILL)
    program.wait()
    with scratch.scratch(tmp_path) as own:
        assert sorted(tmp_path.iterdir()) == sorted([own, stranger])
