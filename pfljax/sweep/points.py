"""Makes the points of a sweep: the checked settings and the clients of each run.

A swept name is a setting of `Experiment` or an option of the method.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax import algorithms
from pfljax.core import factories, requirements
from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs import checks, claims, config, partition
from pfljax.runs.settings import DATA_SETTINGS, FIELDS, UNHASHED, Experiment
from pfljax.simulate import arguments, begin
from pfljax.simulate.federation import build_federation


class Point(NamedTuple):
    """One run of a sweep."""

    values: dict[str, Any]  # by swept name
    experiment: Experiment
    federation: Federation
    digest: str  # of the settings and the data: the name of the run's file


def combine(over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; the last name changes fastest."""
    expected = 'values by name, such as {"lr": [0.1, 0.2]}'
    requirements.require_a("over", over, Mapping, expected)
    values_by_name = [_values(name, swept) for name, swept in over.items()]
    combinations = []
    for values in itertools.product(*values_by_name):
        point = dict(zip(over, values, strict=True))
        combinations.append(point)
    return combinations


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
    # Two equal points would have the same file.
    if len(set(swept)) < len(swept):
        raise ValueError(f"{name} is {swept}; give every value once")
    return swept


def set_values(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values of settings and of its method's options.

    Raises:
      ValueError: a name is neither a setting nor an option.
    """
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
    names = [*factories.defaults(method), *fields]
    known = dict.fromkeys(names, True)
    for name in values:
        requirements.find("name to sweep", known, name)
    return experiment.replace(algorithm=experiment.algorithm.with_options(options))


def make(
    experiment: Experiment,
    over: Mapping[str, Sequence[Any]],
    federation: Federation | Callable[[int], Federation] | None = None,
    task: Task | None = None,
) -> list[Point]:
    """The points of all combinations, checked.

    `federation` may be a function of the seed that makes one.

    Raises:
      ValueError: a name is unknown, or a value is wrong.
    """
    make_federation = arguments.federation_by_seed(federation)
    dealt: dict[tuple, tuple[Federation, str]] = {}
    digests: dict[str, dict[str, Any]] = {}
    points = []
    for values in combine(over):
        settings = set_values(experiment, values)
        custom = make_federation(settings.seed)
        settings = _check(settings, custom, task)
        # Points with the same examples share one federation.
        names = (*DATA_SETTINGS, "seed")
        key = tuple(getattr(settings, name) for name in names)
        if key not in dealt:
            dealt[key] = _deal(settings, custom)
        clients, text = dealt[key]
        digest = _digest(settings, text, with_rounds="rounds" in values)
        if digest in digests:
            raise ValueError(
                f"{values} and {digests[digest]} are the same run; give one of them"
            )
        digests[digest] = values
        points.append(Point(values, settings, clients, digest))
    return points


def _check(
    experiment: Experiment, federation: Federation | None, task: Task | None
) -> Experiment:
    """The settings of a point, checked and resolved."""
    experiment = begin.complete(experiment, federation, task)
    checks.check(
        experiment, own_model=task is not None, own_data=federation is not None
    )
    _check_supported(experiment)
    return checks.resolve(experiment)


def _digest(settings: Experiment, clients: str, *, with_rounds: bool) -> str:
    """The name of a run's file, which includes the rounds if they are swept."""
    text = f"{config.digest(settings)} {clients}"
    if with_rounds:
        text += f" {settings.rounds} rounds"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_supported(experiment: Experiment) -> None:
    """Refuses settings that a sweep does not support."""
    refused = ("eval_after_training", "unseen", "dissimilarity")
    asked = {name: getattr(experiment, name) for name in refused}
    wrong = [f"{name} is {value!r}" for name, value in asked.items() if value]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)}: a sweep evaluates only the personal and the server's "
            "models of the clients that train; leave it out, or use run"
        )
    unused = [f"log is {choice}" for choice in experiment.log]
    if experiment.patience is not None:
        unused.append(f"patience is {experiment.patience}")
    if unused:
        raise ValueError(
            f"{', '.join(unused)}: the runs of a sweep train in one program for all "
            "their rounds, and write one table, sweep.csv; leave it out, or use run or "
            "compare"
        )
    if experiment.pin_clients or experiment.state_storage != "device":
        raise ValueError(
            f"pin_clients is {experiment.pin_clients} and state_storage is "
            f"{experiment.state_storage!r}, but a sweep gives whole runs to the "
            "devices, with all their clients; leave both settings out"
        )


def _deal(experiment: Experiment, custom: Federation | None) -> tuple[Federation, str]:
    """(the clients that train, a text that identifies their examples)."""
    federation, _ = build_federation(experiment, custom)
    manifest = partition.manifest(federation, None, custom is not None)
    names = ["sha256", "x_crc32"]
    # The examples of a user's own federation do not follow from the settings.
    if "spans_crc32" in manifest:
        names += claims.IDENTITY
    return federation, " ".join(str(manifest.get(name)) for name in names)
