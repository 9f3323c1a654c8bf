"""Fixtures of the data tests: the folder of raw archives, and a private cache."""

import os
from pathlib import Path

import pytest

from checkout import SHARED


@pytest.fixture(scope="session")
def raw_dir() -> Path:
    beside = SHARED / "data"
    folder = Path(os.environ.get("PFLJAX_RAW_DIR", beside))
    if not folder.is_dir():
        pytest.skip(f"no raw archives in {folder}; set PFLJAX_RAW_DIR")
    return folder


@pytest.fixture
def cache_dir(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PFLJAX_DATA_DIR", str(folder))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "no_tfds"))
    monkeypatch.delenv("PFLJAX_RAW_DIR", raising=False)
    return folder
