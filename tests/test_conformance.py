"""All methods through the laws of pfljax.conformance.

The laws that compile programs of their own, trace all channels or write files, and the
laws of other options, are slow tests. Law 7, the limit identities, is test_limits.py;
that several devices make one exchange a round (law 11) is engine/test_mesh.py. What a
method declares stands in its own test file, `CONFORMANCE`: a list of cases.
"""

import pytest

import declared
from pfljax import conformance
from pfljax.conformance.laws import COMPILING, LAWS

COSTLY = ("2 channel", "3 restored", *COMPILING)
QUICK = {number: law for number, law in LAWS.items() if number not in COSTLY}
LONG = {number: LAWS[number] for number in COSTLY}
# What the options of a method do not change is checked of its default alone.
ALIKE = ("1", "3 restored", "4 width", "10", "11")
OF_OPTIONS = {number: law for number, law in LAWS.items() if number not in ALIKE}


def cases():
    """The default case of each method by its quick laws; what else there is, slow."""
    slow = pytest.mark.slow
    for first, *others in declared.of_all().values():
        yield pytest.param(first, QUICK, id=first.label)
        yield pytest.param(first, LONG, id=f"{first.label}-costly", marks=slow)
        for case in others:
            yield pytest.param(case, OF_OPTIONS, id=case.label, marks=slow)


@pytest.mark.parametrize(("case", "laws"), [*cases()])
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
