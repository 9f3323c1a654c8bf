"""All methods through the laws of pfljax.conformance.

Law 7, the limit identities, is test_limits.py; that several devices make one exchange a
round (law 11) is engine/test_mesh.py. What a method declares stands in its own test
file, `CONFORMANCE`: a list of cases.
"""

import importlib.util

import pytest

from checkout import TESTS
from pfljax import algorithms, conformance
from pfljax.conformance.laws import LAWS


def declared(name):
    """The cases that the method's own test file declares."""
    files = list(TESTS.glob(f"algorithms/**/test_{name}.py"))
    assert files, f"write tests/algorithms/.../test_{name}.py, with CONFORMANCE"
    spec = importlib.util.spec_from_file_location(f"declared_{name}", files[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.CONFORMANCE[0][:2] == (name, {})
    return module.CONFORMANCE


CASES = [case for name in algorithms.methods() for case in declared(name)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_a_method_holds_to_the_laws(case):
    assert case.bytes is not None, "declare the bytes down and up"
    verdicts = list(conformance.check(case))
    errors = []
    for verdict in verdicts:
        if verdict.error is not None:
            verdict.error.add_note(str(verdict))
            errors.append(verdict.error)
    if errors:
        raise ExceptionGroup(f"{case.label} breaks laws", errors)
    assert len(verdicts) == len(LAWS)
