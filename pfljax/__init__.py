"""pfljax: personalised federated learning in JAX, vectorised over clients.

The public names are those of `__init__.pyi`. They load on first use, so that importing
the package costs nothing.
"""

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    # Here, and not above: until the command line stands ready for Ctrl-C, every import
    # is a moment at which that ends in a traceback.
    import sys

    import lazy_loader

    attribute, names, public = lazy_loader.attach_stub(__name__, __file__)
    globals().update(__getattr__=attribute, __dir__=names, __all__=public)
    return getattr(sys.modules[__name__], name)


def __dir__() -> list[str]:
    import lazy_loader

    _, names, _ = lazy_loader.attach_stub(__name__, __file__)
    return names()
