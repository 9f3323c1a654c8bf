"""The properties of a federation that the compiled functions of a run depend on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pfljax import algorithms
from pfljax.core import factories
from pfljax.core.requirements import require, require_known
from pfljax.data import Federation
from pfljax.evaluation import whole
from pfljax.evaluation.metrics import METRICS
from pfljax.evaluation.over_clients import DETECTION
from pfljax.evaluation.targets import SCORES
from pfljax.runs.settings import Experiment
from pfljax.simulate import participants


class Shape(NamedTuple):
    """All that compiled functions depend on of a federation."""

    num_clients: int
    input_shape: tuple[int, ...]
    num_classes: int  # the width of the outputs
    shift: Any = 0.0
    scale: Any = 1.0
    kind: str = "classes"  # of the targets, a name in `core.kinds`
    target_shape: tuple[int, ...] = ()  # of one example
    # Metrics of all examples of a client, by name, and the most examples of one.
    metrics: tuple[tuple[str, Callable[..., Any]], ...] = ()
    most: int = 0
    for_method: tuple[tuple[str, Any], ...] = ()  # keywords that the method asks for
    for_selection: tuple[tuple[str, Any], ...] = ()  # likewise, the selection


def make_shape(experiment: Experiment, federation: Federation) -> Shape:
    """Returns the federation's properties that compiled functions depend on."""
    factory = algorithms.method(experiment.algorithm.name)
    public = federation.public
    for_method = factories.select_context(
        factory,
        max_examples=int(np.max(federation.train.size)),
        sizes=_hashable(federation.train.size),
        num_public=0 if public is None else int(public.size),
        num_clients=federation.num_clients,
    )
    metrics = tuple(whole.find(experiment.metrics, federation.kind).items())
    _check_metrics(experiment, federation.kind)
    for_selection = participants.selection_facts(experiment, federation)
    return Shape(
        num_clients=federation.num_clients,
        input_shape=federation.train.examples.x.shape[1:],
        num_classes=federation.num_classes,
        kind=federation.kind,
        target_shape=federation.train.examples.y.shape[1:],
        metrics=metrics,
        most=_most_evaluated(federation) if metrics else 0,
        shift=_hashable(federation.shift),
        scale=_hashable(federation.scale),
        for_method=tuple(for_method.items()),
        for_selection=tuple(for_selection.items()),
    )


def _check_metrics(experiment: Experiment, kind: str) -> None:
    """Refuses a metric to lead that the task has not, and its detection of classes."""
    is_classes = kind == "classes"
    expected = f"0, because the task {kind!r} has no classes to detect"
    examples = experiment.ood_examples
    require("ood_examples", examples, is_classes or not examples, expected)
    names = METRICS if is_classes else ("loss", *SCORES[kind].names)
    further = whole.find(experiment.metrics, kind)
    for name in further.keys() & {*names}:
        raise ValueError(
            f"metrics has {name!r}, a metric that the task {kind!r} has already; give "
            "your function another name"
        )
    detection = (DETECTION,) if examples else ()
    known = ("auto", *names, *detection, *further)
    require_known("monitor", experiment.monitor, known)


def _most_evaluated(federation: Federation) -> int:
    """The most test or validation examples of a client."""
    parts = federation.test, federation.validation
    return max(int(np.max(part.size, initial=0)) for part in parts)


def _hashable(value: Any) -> Any:
    """A number, or the nested tuples of an array: the key of a cache."""
    value = np.asarray(value).tolist()
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
