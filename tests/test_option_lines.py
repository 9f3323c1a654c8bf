"""Every option has its own line of help, in the docstring of what it belongs to."""

import pytest

import tiny
from pfljax.core import factories
from pfljax.data.label_noise import NOISES
from pfljax.runs.components import find_factories
from pfljax.runs.docstrings import sections

KINDS = (
    "algorithm",
    "partition",
    "selection",
    "channel",
    "aggregation",
    "profile",
    "mode",
)


@pytest.mark.parametrize("kind", [*KINDS, "noise"])
def test_every_option_has_a_line(kind):
    by_name = NOISES if kind == "noises" else find_factories(kind)
    for name, factory in by_name.items():
        options = sections(factory.__doc__).get("Args", {})
        for option in factories.options(factory):
            assert options.get(option, "").endswith("."), f"{kind} {name}: {option}"


def test_lines_go_on_and_other_sections_end_them():
    def factory():
        """Builds it.

        Args:
          lam: the pull; a
            second line: goes on.
          mu: another.

        Raises:
          ValueError: never.
        """

    options = {"lam": "the pull; a second line: goes on.", "mu": "another."}
    assert sections(factory.__doc__).get("Args", {}) == options


def test_one_name_is_described_in_full():
    code, out, _ = tiny.main("list", "selections", "oort")
    assert code == 0
    assert "penalty: exponent of slow clients' scores" in out
    assert "https://arxiv.org" in tiny.main("list", "algorithms", "ditto")[1]
    code, _, errors = tiny.main("list", "selections", "oorrt")
    assert (code, errors.count("\n")) == (2, 1)
    assert "did you mean 'oort'" in errors
