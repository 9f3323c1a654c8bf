"""The values that an annotation allows, in Python, on a command line and in a run."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest

import tiny
from pfljax import Experiment, algorithms, models
from pfljax.core import factories
from pfljax.core.components import Component
from pfljax.core.ranges import NotNegative, Range
from pfljax.runs import checks, config

OWN = "annotated.py:annotated"
SOURCE = """
from __future__ import annotations
from typing import Literal
from pfljax.algorithms.fedavg import fedavg
from pfljax.core.ranges import NotNegative

def annotated(
    task, local, *,
    lam: NotNegative = 0,
    rate: float | None = None,
    bound: NotNegative | None = None,
    word: str | None = None,
    kind: Literal["mean", "sum"] = "mean",
    often: Literal["auto"] | int = "auto",
    untyped=None,
):
    return fedavg(task, local)
"""


@pytest.fixture
def annotated(folder):
    (folder / "annotated.py").write_text(SOURCE)
    return algorithms.method(OWN)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lam=0.5", 0.5),
        ("rate=0.5", 0.5),
        ("bound=0.5", 0.5),
        ("word=abc", "abc"),
        ("kind=sum", "sum"),
        ("often=3", 3),
        ("untyped=0.5", 0.5),
        ("untyped=abc", "abc"),
    ],
)
def test_the_command_line_takes_what_the_annotation_says(annotated, text, value):
    job = tiny.parsed("--algorithm", f"{OWN}:{text}")
    checks.check(job)
    assert job.algorithm.options == {text.partition("=")[0]: value}


@pytest.mark.parametrize("name", ["rate", "word"])
def test_none_is_none(annotated, name):
    job = tiny.parsed("--algorithm", f"{OWN}:{name}=None")
    assert job.algorithm.args == ((name, None),)


def test_the_command_line_refuses_the_rest(annotated):
    code, out, errors = tiny.main("run", "--algorithm", f"{OWN}:kind=c")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert "annotated': kind is 'c'; expected 'mean' or 'sum'" in errors


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("kind", "c", "kind is 'c'; expected 'mean' or 'sum', such as 'mean'"),
        ("rate", "x", "rate is 'x'; expected a number or None"),
        ("bound", -1, "bound is -1; expected a finite number >= 0"),
        ("often", "x", "expected 'auto' or a whole number, such as 'auto'"),
        ("often", True, "often is True; expected 'auto' or a whole number"),
        ("lam", -1, "lam is -1; expected a finite number >= 0"),
    ],
)
def test_python_refuses_the_rest(annotated, option, value, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        checks.check(Experiment(Component(OWN, {option: value})))


def test_a_whole_number_is_a_float_by_the_annotation(annotated):
    whole = checks.resolve(Experiment(f"{OWN}:rate=1,often=2"))
    other = checks.resolve(Experiment(f"{OWN}:rate=1.0,often=2"))
    assert config.digest(whole) == config.digest(other)
    resolved = whole.algorithm.options
    assert type(resolved["rate"]) is type(resolved["lam"]) is float
    assert type(resolved["often"]) is int


@pytest.mark.parametrize(
    ("whole", "as_float"),
    [
        ({"channel": "clip:norm=1"}, {"channel": "clip:norm=1.0"}),
        (
            {"partition": "dirichlet:alpha=1"},
            {"partition": "dirichlet:alpha=1.0"},
        ),
        ({"noise": "pair:rate=0"}, {"noise": "pair:rate=0.0"}),
        ({"optimizer": "adam:eps=1"}, {"optimizer": "adam:eps=1.0"}),
        ({"optimizer": "adam:b1=0"}, {"optimizer": "adam:b1=0.0"}),
        ({"dataset": "synthetic:alpha=1"}, {"dataset": "synthetic:alpha=1.0"}),
    ],
)
def test_choices_of_1_and_of_1_0_are_one_run(whole, as_float):
    one, other = (checks.resolve(Experiment(**given)) for given in (whole, as_float))
    assert config.digest(one) == config.digest(other)
    assert config.difference(one, other) == []


def test_counts_stay_whole():
    kept = Experiment(partition="shards:per_client=2", aggregation="krum:byzantine=1")
    resolved = checks.resolve(kept)
    assert str(resolved.partition) == "shards:per_client=2"
    assert str(resolved.aggregation[0]) == "krum:byzantine=1"


def test_ranges_count_wherever_they_stand():
    def factory(*, several: Sequence[int] = (2,), odd: Any = 1, plain=1.0):
        pass

    def mixed(*, rate: NotNegative | Literal["auto"] | None = None):
        pass

    factories.check(
        "", Component("x", {"several": (1, 2), "odd": "any", "plain": "any"}), factory
    )
    for value in (1, "auto", None):
        factories.check("", Component("x", {"rate": value}), mixed)
    with pytest.raises(ValueError, match="rate is -1; expected a finite number >= 0"):
        factories.check("", Component("x", {"rate": -1}), mixed)
    with pytest.raises(ValueError, match=r"several is .0,.; expected positive whole"):
        factories.check("", Component("x", {"several": (0,)}), factory)


def test_no_model_has_no_outputs():
    for name, model in models.MODELS.items():
        expected = f"^{name}: num_classes is 0; expected 1 or more$"
        with pytest.raises(ValueError, match=expected):
            model(0)


def test_superfed_takes_no_negative_rounds():
    with pytest.raises(ValueError, match="superfed: rounds is -3; expected at least 1"):
        algorithms.method("superfed")(None, None, rounds=-3)


OPEN = Range(lambda value: 0 < value < 1, "a number above 0 and below 1")


@pytest.mark.parametrize("value", [0.9999999999, 1e-60])
def test_a_range_excludes_what_rounds_to_its_bound_in_float32(value):
    def half_open(*, rate: Annotated[float, OPEN] = 0.5):
        """A factory of one's own."""

    def drawn_on_host(*, rate: Annotated[float, OPEN._replace(on_host=True)] = 0.5):
        """One whose number no compiled program sees."""

    with pytest.raises(ValueError, match=r"rate is .*; expected a number ab"):
        factories.check("thing", Component("mine", {"rate": value}), half_open)
    factories.check("thing", Component("mine", {"rate": value}), drawn_on_host)
