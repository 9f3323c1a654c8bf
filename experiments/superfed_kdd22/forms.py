"""Registers the forms of SuPerFed's code with pfljax, under their own names."""

import os
from pathlib import Path

import models as networks
import noises

from pfljax import models
from pfljax.data import label_noise

METHODS = str(Path(__file__).parent / "methods")


def register() -> None:
    """Adds this folder's methods, models and noises to those that settings may name.

    Methods are named by an environment variable, so that processes started from here
    know them as well.
    """
    folders = os.environ.get("PFLJAX_METHODS", "").split(os.pathsep)
    if METHODS not in folders:
        folders.append(METHODS)
    os.environ["PFLJAX_METHODS"] = os.pathsep.join(filter(None, folders))
    models.MODELS.update(networks.MODELS)
    label_noise.NOISES.update(noises.NOISES)


register()
