"""The scripts of the study lie in no package: their folder is on the path here."""

import importlib
from unittest import mock

import pytest

from checkout import EXPERIMENTS
from pfljax import models
from pfljax.data.label_noise import NOISES

STUDY = EXPERIMENTS / "superfed_kdd22"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """The study's forms are known in its own tests alone."""
    monkeypatch.syspath_prepend(EXPERIMENTS)
    monkeypatch.syspath_prepend(STUDY)
    with mock.patch.dict(models.MODELS), mock.patch.dict(NOISES):
        importlib.import_module("forms").register()
        yield
