"""Settings are checked before anything is compiled, and completed."""

from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

from pfljax import registry
from pfljax.registry import Choice
from pfljax.runs.settings import FIELDS, Experiment, flat, number

SELECTIONS = ("uniform", "by_size")
STORES = ("device", "host", "disk")


def _at_least_one(value: int) -> bool:
    return value >= 1


def _is_width(value: int | str) -> bool:
    return value >= 1 if isinstance(value, int) else value == "auto"


RANGES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("clients cohort rounds epochs steps", _at_least_one, "at least 1"),
    ("batch_size devices eval_every keep", _at_least_one, "at least 1"),
    ("width", _is_width, 'at least 1, or "auto"'),
    ("lr lr_decay", lambda value: 0 < value < float("inf"), "a positive number"),
    (
        "test validation unseen public",
        lambda value: 0 <= value < 1,
        "a share, 0 <= share < 1",
    ),
    ("stragglers", lambda value: 0 <= value <= 1, "a share from 0 to 1"),
    ("momentum", lambda value: 0 <= value < 1, "0 <= momentum < 1"),
    ("weight_decay", lambda value: 0 <= value < float("inf"), "a finite number >= 0"),
    ("seed", lambda value: 0 <= value < 2**31, "0 <= seed < 2**31"),
    ("store", STORES.__contains__, f"one of {', '.join(STORES)}"),
)


def check(experiment: Experiment, own_model: bool = False) -> None:
    """Raises a ValueError that names each wrong setting and what was expected.

    `own_model`: a model is given in Python, and `model` is the name of that.
    """
    check_values(experiment)
    _check_model(experiment.method.model, own_model)
    method = experiment.method
    # Here alone: methods load JAX, which a reader of a run folder does without.
    from pfljax import algorithms
    from pfljax.core import channel

    factory = algorithms.method(method.algorithm)
    registry.check("algorithm", Choice(method.algorithm, method.hyper), factory)
    channel.make(experiment.participation.channel)


def check_values(experiment: Experiment) -> None:
    """The same of types and ranges alone, without a look at methods and models.

    Whoever only reads a run folder needs no JAX for it.
    """
    problems = list(_wrong_types(experiment))
    if not problems:  # ranges of wrong types mean nothing
        problems = [*_out_of_range(experiment), *_at_odds(experiment)]
    if problems:
        raise ValueError("; ".join(problems))
    for name, value in experiment.method.hyper:
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{name} is {value!r}, which no config can hold")


def names_own_model(model: Choice) -> bool:
    """Whether no model of pfljax has this name: it can only be given in Python."""
    from pfljax.models import MODELS

    return model.name != "auto" and model.name not in MODELS


def _check_model(model: Choice, own: bool) -> None:
    from pfljax.models import MODELS

    if own and not names_own_model(model):
        raise ValueError(
            f"model is {str(model)!r}, the name of one of pfljax, but a task is given; "
            "give your model a name of its own, such as model='mine'"
        )
    if not own and names_own_model(model):
        try:
            registry.find("model", MODELS, model.name)
        except ValueError as error:
            advice = "your own: run(experiment, federation, task=...) in Python"
            raise ValueError(f"{error}; {advice}") from None


def resolve(experiment: Experiment) -> Experiment:
    """The same run with the method's options, label and folder written out."""
    from pfljax import algorithms

    algorithm = experiment.method.algorithm
    defaults = registry.defaults(algorithms.method(algorithm))
    hyper = dict(defaults)
    for name, value in experiment.method.hyper:
        hyper[name] = number(value, defaults.get(name))
    special = [f"{k}={v}" for k, v in hyper.items() if v != defaults.get(k)]
    label = experiment.output.label or " ".join([algorithm, *special])
    return experiment.replace(hyper=hyper, label=label, out=experiment.folder)


def _wrong_types(experiment: Experiment) -> Iterator[str]:
    for name, value in flat(experiment).items():
        kind: Any = FIELDS[name].type
        if name != "hyper" and not _is_a(value, kind):
            yield f"{name} is {value!r}; expected {_kind_name(kind)}"


def _is_a(value: Any, kind: Any) -> bool:
    """Whether the value is of this type; True and False are no numbers."""
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return isinstance(value, tuple) and all(_is_a(v, item) for v in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind)


def _kind_name(kind: Any) -> str:
    if kind is Choice:
        return "str"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _out_of_range(experiment: Experiment) -> Iterator[str]:
    values = flat(experiment)
    for names, fits, expected in RANGES:
        for name in names.split():
            if values[name] is not None and not fits(values[name]):
                yield f"{name} is {values[name]!r}; expected {expected}"
    selection = experiment.participation.selection
    if selection.name not in SELECTIONS or selection.args:
        known = ", ".join(SELECTIONS)
        yield f"selection is {str(selection)!r}; expected one of {known}"


def _at_odds(experiment: Experiment) -> Iterator[str]:
    yield from _odd_work(experiment)
    yield from _odd_cohort(experiment)
    machine = experiment.machine
    if machine.homes and machine.store != "device":
        yield (
            f"homes is set, but store is {machine.store!r}, whose states lie on no "
            'device; choose store="device"'
        )


def _odd_work(experiment: Experiment) -> Iterator[str]:
    training = experiment.training
    if (training.epochs is None) == (training.steps is None):
        yield (
            f"epochs is {training.epochs} and steps is {training.steps}; give exactly "
            "one of them, and None for the other: --epochs None --steps 3"
        )
    optimizer = training.optimizer
    if optimizer.name != "sgd" and (training.momentum or training.weight_decay):
        yield (
            f"momentum and weight_decay belong to sgd; give {str(optimizer)!r} "
            "its own options, such as adamw:weight_decay=0.01"
        )


def _odd_cohort(experiment: Experiment) -> Iterator[str]:
    clients = experiment.data.clients
    cohort = experiment.participation.cohort
    stragglers = experiment.participation.stragglers
    if clients is not None and cohort > clients > 0:
        yield (
            f"cohort is {cohort}, but there are {clients} clients; "
            f"choose cohort <= {clients}"
        )
    if experiment.participation.drop_stragglers and not stragglers:
        yield "drop_stragglers is set, but stragglers is 0; give their share"
    if stragglers and not round(stragglers * cohort):
        yield f"stragglers is {stragglers}, which is nobody in a cohort of {cohort}"
