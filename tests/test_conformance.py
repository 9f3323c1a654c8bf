"""All methods through the laws of pfljax.conformance.

The laws that compile programs of their own, and all laws of other options, are slow
tests. Law 7, the limit identities, is test_limits.py; that several devices make one
exchange a round (law 11) is engine/test_mesh.py. What a method declares stands in its
own test file, `CONFORMANCE`: a list of cases.
"""

import pytest

import declared
from pfljax import conformance
from pfljax.conformance.laws import COMPILING, LAWS

OTHERS = {number: law for number, law in LAWS.items() if number not in COMPILING}
CASES = [
    pytest.param(case, LAWS, marks=pytest.mark.slow, id=case.label)
    for cases in declared.of_all().values()
    for case in cases
]
# With other options a method does much the same.
QUICK = [
    pytest.param(cases[0], OTHERS, id=f"{cases[0].label}-quick")
    for cases in declared.of_all().values()
]


@pytest.mark.parametrize(("case", "laws"), [*QUICK, *CASES])
def test_a_method_holds_to_the_laws(case, laws):
    assert case.bytes is not None, "declare the bytes down and up"
    verdicts = list(conformance.check(case, laws))
    errors = []
    for verdict in verdicts:
        if verdict.error is not None:
            verdict.error.add_note(str(verdict))
            errors.append(verdict.error)
    if errors:
        raise ExceptionGroup(f"{case.label} breaks laws", errors)
    assert len(verdicts) == len(laws)
