"""Makes the forms of SuPerFed's code known to pfljax, under names of their own."""

import models as networks

from pfljax import models


def register() -> None:
    """Adds this folder's models to those that settings may name."""
    models.MODELS.update(networks.MODELS)


register()
