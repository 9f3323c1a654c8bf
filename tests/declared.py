"""The conformance cases that methods declare in their own test files."""

import importlib.util

from checkout import TESTS
from pfljax import algorithms


def of_method(name):
    """The cases `CONFORMANCE` of the method's own test file.

    A list of `pfljax.conformance.Case`; the first is the default, or says why not.
    """
    files = list(TESTS.glob(f"algorithms/**/test_{name}.py"))
    assert files, f"write tests/algorithms/.../test_{name}.py, with CONFORMANCE"
    spec = importlib.util.spec_from_file_location(f"declared_{name}", files[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.CONFORMANCE[0].name == name
    return module.CONFORMANCE


def of_all():
    """The cases of every method, by its name."""
    return {name: of_method(name) for name in algorithms.methods()}
