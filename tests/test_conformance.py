"""All methods through the laws of pfljax.conformance.

Law 7, the limit identities, is test_limits.py; that several devices make one exchange a
round (law 11) is engine/test_mesh.py. What a method declares stands in its own test
file, `CONFORMANCE`: a list of cases.
"""

import pytest

import declared
from pfljax import conformance
from pfljax.conformance.laws import LAWS

CASES = [
    # With other options a method does much the same: these are the long tests.
    pytest.param(case, marks=[pytest.mark.slow] if place else [], id=case.label)
    for cases in declared.of_all().values()
    for place, case in enumerate(cases)
]


@pytest.mark.parametrize("case", CASES)
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
