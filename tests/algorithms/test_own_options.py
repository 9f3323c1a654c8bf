"""Options of one's own methods: set by name, of values that a config holds."""

import re

import pytest

import tiny
from pfljax import Experiment, algorithms
from pfljax.runs import checks

FEDAVG = "from pfljax.algorithms.fedavg import fedavg\n"


def write(folder, options):
    code = f"{FEDAVG}def mine({options}):\n    return fedavg(task, local)\n"
    (folder / "mine.py").write_text(code)


@pytest.mark.parametrize("options", ["lam=1.0", "lam=1.0, *, mu=2.0"])
def test_a_positional_option_is_refused_at_once(folder, options):
    write(folder, f"task, local, {options}")
    expected = f"mine.py:2: mine takes (task, local, {options}); expected (task, local,"
    with pytest.raises(ValueError, match=re.escape(expected)):
        algorithms.method("mine.py:mine")
    code, _, errors = tiny.main("run", "--algorithm", "mine.py:mine:lam=2")
    assert (code, errors.count("\n")) == (2, 1)
    assert expected in errors


@pytest.mark.parametrize("default", ["(1, 2)", "print", "{}"])
def test_a_default_that_no_config_holds_is_refused_at_once(folder, default):
    write(folder, f"task, local, *, lam={default}")
    with pytest.raises(ValueError, match=r"which config.json cannot hold"):
        checks.check(Experiment("mine.py:mine"))


def test_an_option_without_a_default_is_asked_for(folder):
    write(folder, "task, local, *, mu: float, lam: float = 1.0")
    found = tiny.parsed("--algorithm", "mine.py:mine:mu=2")
    assert found.algorithm.options == {"mu": 2}
    code, _, errors = tiny.main("run", "--algorithm", "mine.py:mine")
    assert (code, errors.count("\n")) == (2, 1)
    assert "'mine.py:mine' needs the parameter 'mu'" in errors


def test_an_option_with_the_name_of_a_setting_is_refused(folder):
    write(folder, "task, local, *, steps=1")
    expected = (
        "'mine.py:mine' has an option 'steps', which is the name of a setting; give"
    )
    with pytest.raises(ValueError, match=expected):
        checks.check(Experiment("mine.py:mine"))
    code, _, errors = tiny.main("run", "--algorithm", "mine.py:mine")
    assert (code, errors.count("\n")) == (2, 1)
    assert expected in errors


@pytest.mark.parametrize("shell", ["foo", ""])
def test_a_shell_that_tyro_does_not_know_is_refused(shell):
    found = tiny.main("--tyro-print-completion", *filter(None, [shell]))
    known = f"pfljax: --tyro-print-completion is {shell!r}; known: bash,"
    assert found[:2] == (2, "")
    assert found[2].startswith(known)
