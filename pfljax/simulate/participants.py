"""Who takes part in a run, from its settings, and what a selection is told."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pfljax import registry, selection
from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs.settings import Experiment


def selection_factory(experiment: Experiment) -> Callable[..., selection.Selection]:
    """The factory of who takes part."""
    name = experiment.selection.name
    return registry.find("selection", selection.SELECTIONS, name)


def asks_seconds(experiment: Experiment) -> bool:
    """Whether the selection goes by the seconds of each client's round."""
    return bool(registry.select_context(selection_factory(experiment), seconds=True))


def selection_facts(experiment: Experiment, federation: Federation) -> dict[str, Any]:
    """What the selection asks to know of the clients and of the server, in tuples."""
    factory = selection_factory(experiment)
    public = federation.public
    asked = registry.select_context(
        factory, public_rows=0 if public is None else int(public.size)
    )
    # Without a profile of the devices, seconds are as rows.
    if registry.select_context(factory, sizes=True, seconds=True):
        asked["sizes"] = tuple(np.asarray(federation.train.size).tolist())
    if registry.select_context(factory, least_label=True):
        asked |= registry.select_context(factory, **label_shares(federation))
    return asked


def label_shares(federation: Federation) -> dict[str, tuple[float, ...]]:
    """Of the labels that each client trains on, from 0 to 1; 0 of no rows.

    The least and the greatest, of the largest label, and how many, of all.
    """
    train = federation.train
    labels = np.asarray(train.examples.y)
    most = max(federation.num_classes - 1, 1)
    least = []
    greatest = []
    count = []
    for start, size in zip(
        np.asarray(train.offset), np.asarray(train.size), strict=True
    ):
        held = np.unique(labels[start : start + size])
        least.append(float(held[0]) / most if size else 0.0)
        greatest.append(float(held[-1]) / most if size else 0.0)
        count.append(len(held) / federation.num_classes)
    return {
        "least_label": tuple(least),
        "greatest_label": tuple(greatest),
        "label_count": tuple(count),
    }


def make_selection(
    experiment: Experiment,
    num_clients: int,
    known: Mapping[str, Any],
    task: Task,
) -> selection.Selection:
    """Who takes part in a round, and how much of its work each client does.

    `known` is what `told` gave, and the `seconds` of a round of each client where the
    run has a clock; `sizes` may be None.
    """
    factory = selection_factory(experiment)
    sizes = np.asarray(known.get("sizes") or ())
    of_run: dict[str, Any] = {
        "num_clients": num_clients,
        "rounds": experiment.rounds,
        "epochs": experiment.epochs,
        "task": task,
        # Without a clock: a row takes a second.
        "seconds": np.maximum(sizes.astype(np.float64), 1),
    }
    of_run |= dict(known) | {"sizes": sizes}
    asked = registry.select_context(factory, **of_run)
    options = experiment.selection.options
    drawn = factory(experiment.cohort, **asked, **options)
    if not experiment.stragglers:
        return drawn
    return selection.stragglers(
        drawn,
        experiment.stragglers,
        experiment.epochs,
        experiment.drop_stragglers,
    )
