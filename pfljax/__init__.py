"""pfljax: personalised federated learning in JAX, vectorised over clients.

The public names are those of `__init__.pyi`. They load on first use, so that importing
the package costs nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
