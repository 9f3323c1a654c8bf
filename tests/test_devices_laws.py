"""Every selection, channel and clock with every family of methods."""

import pytest

from devices_laws import items, page
from devices_laws.verdicts import FAMILIES, check_method
from pfljax import algorithms

# Several kinds of state and upload; each plays a fourth of the combinations here, and
# `make devices` plays all of them with every family.
METHODS = ("fedavg", "local", "ditto", "scaffold")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_item_holds_to_the_laws_or_is_refused_in_a_line(method):
    verdicts = check_method(method, METHODS.index(method), len(METHODS))
    broken = {item: each.broken for item, each in verdicts.items() if each.broken}
    assert not broken
    for verdict in verdicts.values():
        assert "\n" not in verdict.refused
        assert len(verdict.refused) < 400
    takes = {page.label(item): not each.refused for item, each in verdicts.items()}
    assert takes == page.cells_of(method, page.PAGE.read_text())


def test_every_family_has_a_method_in_the_table():
    family = algorithms.families()
    expected = {family[name] or name for name in algorithms.methods()}
    assert set(FAMILIES) == expected
    for name, methods in FAMILIES.items():
        assert {family[method] or method for method in methods} == {name}
    labels = [page.label(item) for item in items.every()]
    assert len(labels) == len(set(labels))
