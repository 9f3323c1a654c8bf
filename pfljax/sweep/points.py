"""The points of a sweep: the settings and the clients of each run, checked.

A name is a setting of `Experiment` or an option of the method.
"""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax import algorithms, registry
from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs import checks, config
from pfljax.runs.config import UNHASHED
from pfljax.runs.provenance import of_run
from pfljax.runs.settings import FIELDS, Experiment, flat
from pfljax.simulate import simulation
from pfljax.simulate.federation import ROWS, build_federation


class Point(NamedTuple):
    """One run of a sweep."""

    values: dict[str, Any]  # what is swept
    experiment: Experiment
    federation: Federation
    digest: str  # of the settings and the rows: the name of the run's file


def combined(over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; the last name changes fastest."""
    values = [_values(name, swept) for name, swept in over.items()]
    return [dict(zip(over, point, strict=True)) for point in itertools.product(*values)]


def _values(name: str, values: Any) -> list[Any]:
    """The values to sweep, as Python's own."""
    if isinstance(values, str | int | float) or not len(values):
        raise ValueError(f"{name} is {values!r}; expected a list of values to sweep")
    values = [v.item() if isinstance(v, np.generic) else v for v in values]
    odd = [v for v in values if not isinstance(v, bool | int | float | str | None)]
    if odd:
        raise ValueError(f"{name} is {odd[0]!r}; expected numbers, texts, True or None")
    if len(set(values)) < len(values):
        raise ValueError(f"{name} is {values}; give every value once")
    return values


def settled(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values of its settings and of its method's options.

    Raises:
      ValueError: a name is neither.
    """
    fields = set(FIELDS) - {"hyper", *UNHASHED}
    settings: Any = {n: value for n, value in values.items() if n in fields}
    experiment = experiment.replace(**settings)
    method = algorithms.method(experiment.method.algorithm)
    known = dict.fromkeys([*registry.defaults(method), *fields], True)
    for name in values:
        registry.find("name to sweep", known, name)
    options = {name: values[name] for name in values if name not in fields}
    return experiment.replace(hyper=dict(experiment.method.hyper) | options)


def make(
    experiment: Experiment,
    over: Mapping[str, Sequence[Any]],
    given: Any = None,
    task: Task | None = None,
) -> list[Point]:
    """The points of all combinations, checked.

    `given` is a federation, a function of the seed that makes one, or None.

    Raises:
      ValueError: a name is unknown, or a value is wrong.
    """
    given_by_seed: dict[int, Federation | None] = {}
    dealt: dict[tuple, tuple[Federation, str]] = {}
    points = []
    for values in combined(over):
        settings = settled(experiment, values)
        if settings.seed not in given_by_seed:
            given_by_seed[settings.seed] = _of_seed(given, settings.seed)
        of_seed = given_by_seed[settings.seed]
        settings = simulation.truthful(settings, of_seed, task)
        checks.check(settings, own_model=task is not None)
        _check_judged(settings)
        settings = checks.resolve(settings)
        # Points that differ in nothing of the rows share one federation.
        rows = tuple(flat(settings, ROWS).values())
        if rows not in dealt:
            dealt[rows] = _dealt(settings, of_seed)
        federation, clients = dealt[rows]
        digest = _digest(settings, clients, with_rounds="rounds" in values)
        points.append(Point(values, settings, federation, digest))
    return points


def _digest(settings: Experiment, clients: str, *, with_rounds: bool) -> str:
    """The name of a run's file; it has the rounds where runs differ in them."""
    text = f"{config.digest(settings)} {clients}"
    if with_rounds:
        text += f" {settings.participation.rounds} rounds"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_judged(experiment: Experiment) -> None:
    """Refuses what a sweep does not do."""
    asked = flat(experiment, ("trained", "unseen", "baseline"))
    wrong = [f"{name} is {value!r}" for name, value in asked.items() if value]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)}: a sweep judges the clients that train by their "
            "personal and server models alone; use run for the rest"
        )
    machine = experiment.machine
    if machine.homes or machine.store != "device":
        raise ValueError(
            f"homes is {machine.homes}, store {machine.store!r}: a sweep deals "
            "whole runs to the devices, with all their clients; leave both out"
        )


def _of_seed(given: Any, seed: int) -> Federation | None:
    """The federation given for this seed."""
    if given is None or isinstance(given, Federation):
        return given
    return given(seed)


def _dealt(experiment: Experiment, given: Federation | None) -> tuple[Federation, str]:
    """(clients that train, a text that tells them and their rows from others)."""
    federation, _ = build_federation(experiment, given)
    manifest = of_run(federation, None, given is not None)
    names = ["sha256", "x_crc32"]
    if given:
        names += ["clients", "shift", "scale"]
    return federation, " ".join(str(manifest.get(name)) for name in names)
