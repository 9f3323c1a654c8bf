"""The scripts of the study lie in no package: their folder is on the path here."""

import pytest

from checkout import EXPERIMENTS

STUDY = EXPERIMENTS / "superfed_kdd22"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    monkeypatch.syspath_prepend(STUDY)
