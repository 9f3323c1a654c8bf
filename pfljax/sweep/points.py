"""Makes the points of a sweep: the checked settings and the folder of each run.

A swept name is a setting of `Experiment` or an option of the method. The values of
"without" are names of such: each is at its default in one point. None leaves none out.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax import algorithms
from pfljax.core import factories, requirements
from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs import config, names
from pfljax.runs.settings import FIELDS, UNHASHED, Experiment
from pfljax.simulate import arguments, begin

WITHOUT = names.WITHOUT


class Point(NamedTuple):
    """One run of a sweep."""

    values: dict[str, Any]  # by swept name
    experiment: Experiment  # with a folder of its own
    federation: Federation | None = None  # clients of one's own


def combine(over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; the last name changes fastest."""
    expected = 'values by name, such as {"lr": [0.1, 0.2]}'
    requirements.require_a("over", over, Mapping, expected)
    values_by_name = [_values(name, swept) for name, swept in over.items()]
    combinations = itertools.product(*values_by_name)
    return [dict(zip(over, values, strict=True)) for values in combinations]


def _values(name: str, values: Any) -> list[Any]:
    """The values to sweep, converted to Python's own types."""
    expected = "a list of values to sweep"
    if isinstance(values, np.ndarray):
        values = values.tolist()  # a number, where it has no axis
    if isinstance(values, str):
        requirements.require_a(name, values, (), expected)
    requirements.require_a(name, values, Sequence, expected)
    if not values:
        raise ValueError(f"{name} is {values!r}; expected {expected}, one at least")
    swept = []
    for value in values:
        # NumPy's numbers cannot be written as JSON.
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(
                f"{name} is {value!r}; expected numbers, texts, True or None"
            )
        swept.append(value)
    # Two equal points would have the same folder.
    if len(set(swept)) < len(swept):
        raise ValueError(f"{name} is {swept}; give every value once")
    return swept


def set_values(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values of settings and of its method's options.

    Raises:
      ValueError: a name is neither a setting nor an option.
    """
    values = dict(values)
    part = values.pop(WITHOUT, None)
    if part is not None:
        values[part] = _find_default(experiment, part)
    # Settings that change no result cannot be swept.
    fields = set(FIELDS) - set(UNHASHED)
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in values.items():
        record = settings if name in fields else options
        record[name] = value
    # Settings come first: the method itself may be swept.
    experiment = experiment.replace(**settings)
    method = algorithms.method(experiment.algorithm.name)
    short = experiment.algorithm.short_name
    known = dict.fromkeys([*factories.defaults(method), *fields], True)
    for name in values:
        requirements.find(f"setting or option of {short}", known, name)
    return experiment.replace(algorithm=experiment.algorithm.with_options(options))


def _find_default(experiment: Experiment, part: str) -> Any:
    """The default of a setting or an option, which differs from its value here.

    Raises:
      ValueError: there is nothing to leave out.
    """
    options = factories.defaults(algorithms.method(experiment.algorithm.name))
    settings = vars(Experiment()) | options
    default = requirements.find("setting or option to leave out", settings, part)
    given = (vars(experiment) | options | experiment.algorithm.options)[part]
    if given == default:
        raise ValueError(
            f"{part} is {given}, its default, so that nothing would be left out; set "
            f"it, or take {part} out of --without"
        )
    return default


def make(
    experiment: Experiment,
    over: Mapping[str, Sequence[Any]],
    out: Path,
    federation: Federation | Callable[[int], Federation] | None = None,
    task: Task | None = None,
) -> list[Point]:
    """The points of all combinations, each with its folder out/LABEL/sSEED, checked.

    `federation` may be a function of the seed that makes one.

    Raises:
      ValueError: a name is unknown, or a value is wrong.
    """
    make_federation = arguments.federation_by_seed(federation)
    points: list[Point] = []
    same: dict[str, dict[str, Any]] = {}  # the values, by settings and by folder
    labels: set[str] = set()
    for values in combine(over):
        one = set_values(experiment, values)
        label = describe(values, experiment.label)
        one = one.replace(label=label or None)
        clients = make_federation(one.seed)
        # A method is built by trial for the first seed of each point: that takes long.
        if label in labels:
            resolved = begin.validate(one, clients, task)
        else:
            resolved = begin.check_method(one, clients, task, tuple(over))
        labels.add(label)
        folder = out / names.label_folder(str(resolved.label)) / f"s{one.seed}"
        settings = config.to_json(resolved.replace(label=None, out=None))
        for key, said in (
            (json.dumps(settings), "are the same run; give one of them"),
            (str(folder), "have one label; give a function another name"),
        ):
            if same.setdefault(key, values) != values:
                raise ValueError(f"{same[key]} and {values} {said}")
        points.append(Point(values, one.replace(out=str(folder)), clients))
    return points


def describe(values: Mapping[str, Any], label: str | None = None) -> str:
    """A point in words, without its seed; a method goes by its own name."""
    words = [label] if label else []
    for name, value in values.items():
        if name not in ("seed", WITHOUT):
            text = names.value_text(value)
            words.append(text if name == "algorithm" else f"{name}={text}")
    if WITHOUT in values:  # at the end, where the report looks for it
        part = values[WITHOUT]
        words.append(names.FULL if part is None else f"{names.WITHOUT} {part}")
    return " ".join(words)
