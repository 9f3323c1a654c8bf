"""Makes the forms of SuPerFed's code known to pfljax, under names of their own."""

import models as networks
import noises

from pfljax import models
from pfljax.data import label_noise


def register() -> None:
    """Adds this folder's models and noises to those that settings may name."""
    models.MODELS.update(networks.MODELS)
    label_noise.NOISES.update(noises.NOISES)


register()
