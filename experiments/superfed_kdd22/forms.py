"""Registers the forms of SuPerFed's code with pfljax, under their own names."""

from pathlib import Path

import models as networks
import noises

from pfljax import models
from pfljax.data import label_noise

METHODS = Path(__file__).parent / "methods"


def form(name: str) -> str:
    """The name of a method of this folder, as settings have it."""
    return f"{METHODS}/{name}.py:{name}"


def register() -> None:
    """Adds this folder's models and noises to those that settings may name."""
    models.MODELS.update(networks.MODELS)
    label_noise.NOISES.update(noises.NOISES)


register()
