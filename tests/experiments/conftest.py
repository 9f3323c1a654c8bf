"""Modules of a study: those of several studies have the same names."""

import importlib
import sys

import pytest

from checkout import EXPERIMENTS


@pytest.fixture
def study(monkeypatch):
    """A function that imports a module of these studies."""
    names = (
        "fedprox_mlsys20",
        "relations",
        "heterogeneous",
        "fedakt",
        "pfedvem_cvpr23",
        "devices",
    )
    folders = [EXPERIMENTS / name for name in names]
    monkeypatch.syspath_prepend(EXPERIMENTS)
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    names = [path.stem for folder in folders for path in folder.glob("*.py")]
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(others)
