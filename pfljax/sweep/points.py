"""The points of a sweep: the settings and the clients of each run, checked.

A name is a setting of `Experiment` or an option of the method.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax import algorithms, registry
from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs import checks, claims, config, partition
from pfljax.runs.settings import FIELDS, UNHASHED, Experiment
from pfljax.simulate import arguments, begin
from pfljax.simulate.federation import ROWS, build_federation


class Point(NamedTuple):
    """One run of a sweep."""

    values: dict[str, Any]  # what is swept
    experiment: Experiment
    federation: Federation
    digest: str  # of the settings and the rows: the name of the run's file


def combine(over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; the last name changes fastest."""
    expected = 'values by name, such as {"lr": [0.1, 0.2]}'
    registry.require_a("over", over, Mapping, expected)
    values_by_name = [_values(name, swept) for name, swept in over.items()]
    combinations = []
    for values in itertools.product(*values_by_name):
        point = dict(zip(over, values, strict=True))
        combinations.append(point)
    return combinations


def _values(name: str, values: Any) -> list[Any]:
    """The values to sweep, as Python's own."""
    expected = "a list of values to sweep"
    if isinstance(values, np.ndarray):
        values = values.tolist()  # a number, where it has no axis
    if isinstance(values, str):
        registry.require_a(name, values, (), expected)
    registry.require_a(name, values, Sequence, expected)
    if not values:
        raise ValueError(f"{name} is {values!r}; expected {expected}, one at least")
    swept = []
    for value in values:
        # NumPy's numbers are no JSON, and sweep.json names every value.
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(
                f"{name} is {value!r}; expected numbers, texts, True or None"
            )
        swept.append(value)
    # Two runs of one point would have the same file.
    if len(set(swept)) < len(swept):
        raise ValueError(f"{name} is {swept}; give every value once")
    return swept


def set_values(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values of its settings and of its method's options.

    Raises:
      ValueError: a name is neither.
    """
    # What changes no number of a run makes no other run.
    fields = set(FIELDS) - set(UNHASHED)
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in values.items():
        record = settings if name in fields else options
        record[name] = value
    # Settings first: the method may be swept, and its options are then its own.
    experiment = experiment.replace(**settings)
    method = algorithms.method(experiment.algorithm.name)
    names = [*registry.defaults(method), *fields]
    known = dict.fromkeys(names, True)
    for name in values:
        registry.find("name to sweep", known, name)
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
    of_seed = arguments.federation_by_seed(federation)
    dealt: dict[tuple, tuple[Federation, str]] = {}
    digests: dict[str, dict[str, Any]] = {}
    points = []
    for values in combine(over):
        settings = set_values(experiment, values)
        custom = of_seed(settings.seed)
        settings = _check(settings, custom, task)
        # Points that do not differ in their examples share one federation.
        rows = tuple(getattr(settings, name) for name in ROWS)
        if rows not in dealt:
            dealt[rows] = _deal(settings, custom)
        clients, text = dealt[rows]
        digest = _digest(settings, text, with_rounds="rounds" in values)
        if digest in digests:
            raise ValueError(
                f"{values} and {digests[digest]} are one run; give one of them"
            )
        digests[digest] = values
        point = Point(
            values=values,
            experiment=settings,
            federation=clients,
            digest=digest,
        )
        points.append(point)
    return points


def _check(
    experiment: Experiment, federation: Federation | None, task: Task | None
) -> Experiment:
    """The settings of a point as its run has them, checked."""
    experiment = begin.complete(experiment, federation, task)
    checks.check(
        experiment, own_model=task is not None, own_data=federation is not None
    )
    _check_supported(experiment)
    return checks.resolve(experiment)


def _digest(settings: Experiment, clients: str, *, with_rounds: bool) -> str:
    """The name of a run's file; it has the rounds where runs differ in them."""
    text = f"{config.digest(settings)} {clients}"
    if with_rounds:
        text += f" {settings.rounds} rounds"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_supported(experiment: Experiment) -> None:
    """Refuses what a sweep does not do."""
    refused = ("eval_after_training", "unseen", "baseline", "dissimilarity")
    asked = {name: getattr(experiment, name) for name in refused}
    wrong = [f"{name} is {value!r}" for name, value in asked.items() if value]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)}: a sweep judges the clients that train by their "
            "personal and server models alone; use run for the rest"
        )
    unused = [f"log is {choice}" for choice in experiment.log]
    if experiment.patience is not None:
        unused.append(f"patience is {experiment.patience}")
    if unused:
        raise ValueError(
            f"{', '.join(unused)}: runs of a sweep train in one program, all their "
            "rounds, and have one table of their own, sweep.csv; leave it out, or use "
            "run or compare"
        )
    machine = experiment
    if machine.pin_clients or machine.state_storage != "device":
        raise ValueError(
            f"pin_clients is {machine.pin_clients} and state_storage is "
            f"{machine.state_storage!r}, but a sweep gives whole runs to the devices, "
            "with all their clients; leave both settings out"
        )


def _deal(experiment: Experiment, custom: Federation | None) -> tuple[Federation, str]:
    """(the clients that train, a text that tells their examples from others)."""
    federation, _ = build_federation(experiment, custom)
    manifest = partition.manifest(federation, None, custom is not None)
    names = ["sha256", "x_crc32"]
    # The examples of a data set follow from the settings; those of one's own do not.
    if "spans_crc32" in manifest:
        names += claims.IDENTITY
    return federation, " ".join(str(manifest.get(name)) for name in names)
