"""Makes the selection of a run from its settings and its clients."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pfljax import selection
from pfljax.core import factories
from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs.settings import Experiment


def selection_factory(experiment: Experiment) -> Callable[..., selection.Selection]:
    """The factory of the selection."""
    name = experiment.selection.name
    return factories.find("selection", selection.SELECTIONS, name)


def asks_seconds(experiment: Experiment) -> bool:
    """Whether the selection depends on the seconds of each client's round."""
    return bool(factories.select_context(selection_factory(experiment), seconds=True))


def selection_facts(experiment: Experiment, federation: Federation) -> dict[str, Any]:
    """The keywords of the selection about clients and server, as tuples."""
    factory = selection_factory(experiment)
    public = federation.public
    asked = factories.select_context(
        factory, num_public=0 if public is None else int(public.size)
    )
    # Without a profile of devices, an example takes a second.
    if factories.select_context(factory, sizes=True, seconds=True):
        asked["sizes"] = tuple(np.asarray(federation.train.size).tolist())
    if factories.select_context(factory, least_label=True):
        asked |= factories.select_context(factory, **label_shares(federation))
    return asked


def label_shares(federation: Federation) -> dict[str, tuple[float, ...]]:
    """The smallest and the largest class of each client, and its number of classes.

    With K classes, the first two are divided by K - 1 and the number is divided by K. A
    client without examples has 0.
    """
    train = federation.train
    labels = np.asarray(train.examples.y)
    most = max(federation.num_classes - 1, 1)
    shares = []
    spans = zip(np.asarray(train.offset), np.asarray(train.size), strict=True)
    for start, size in spans:
        held = np.unique(labels[start : start + size]).tolist()
        count = len(held) / federation.num_classes
        held = held or [0]
        shares.append((held[0] / most, held[-1] / most, count))
    names = ("least_label", "greatest_label", "label_count")
    return dict(zip(names, zip(*shares, strict=True), strict=True))


def make_selection(
    experiment: Experiment,
    num_clients: int,
    known: Mapping[str, Any],
    task: Task,
) -> selection.Selection:
    """The selection of clients in a round, and of the work that each client does.

    `known` are the `selection_facts`, and in a run with a clock also the `seconds` of
    each client's round.
    """
    factory = selection_factory(experiment)
    sizes = np.asarray(known.get("sizes", ()))
    facts = {
        "num_clients": num_clients,
        "rounds": experiment.rounds,
        "epochs": experiment.epochs,
        "task": task,
        # Without a clock an example takes a second.
        "seconds": np.maximum(sizes.astype(np.float64), 1),
        **known,
        "sizes": sizes,
    }
    asked = factories.select_context(factory, **facts)
    drawn = factories.build(
        "selection",
        selection.SELECTIONS,
        experiment.selection,
        experiment.cohort,
        returns=selection.Selection,
        **asked,
    )
    if not experiment.stragglers:
        return drawn
    return selection.stragglers(
        drawn,
        experiment.stragglers,
        experiment.epochs,
        experiment.drop_stragglers,
    )
