"""Settings are checked before anything is compiled, and completed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args, get_origin

from pfljax import registry
from pfljax.core.precision import PRECISIONS
from pfljax.registry import Choice, Range, annotations
from pfljax.runs import at_odds, begun_before, chosen, fingerprint
from pfljax.runs.early_end import WATCHED
from pfljax.runs.settings import FIELDS, Experiment, flat, with_options

SEVERAL = {  # settings of several choices, and an example
    "channel": "clip:norm=1.0 gaussian:std=0.1",
    "aggregation": "krum:byzantine=2",
    "models": "mlp:hidden=(64,) mlp:hidden=(32,)",
    "log": "csv tensorboard",
}
STORES = ("device", "host", "disk")
# Options of commands that are no settings.
OF_COMMANDS = ("config", "over", "distributed", "coordinator", "processes", "process")


def _is_width(value: int | str) -> bool:
    return value >= 1 if isinstance(value, int) else value == "auto"


def _is_in_32_bits(value: int | str) -> bool:
    return isinstance(value, str) or registry.INT32.holds(value)


COUNTS = "clients cohort rounds steps batch_size devices eval_every keep patience"
SHARE = Range(lambda value: 0 <= value < 1, "a share, 0 <= share < 1", on_host=True)
RANGES: tuple[tuple[str, Range], ...] = (
    (COUNTS, registry.AT_LEAST_ONE),
    ("width", Range(_is_width, 'at least 1, or "auto"')),
    ("foreign", registry.AT_LEAST_ZERO),
    (f"{COUNTS} foreign width", registry.INT32._replace(holds=_is_in_32_bits)),
    ("epochs", registry.INT32),
    ("epochs lr lr_decay deadline", registry.POSITIVE),
    ("test validation unseen public", SHARE),
    ("stragglers", Range(lambda value: 0 <= value <= 1, "a share from 0 to 1")),
    ("momentum", registry.BELOW_ONE),
    ("weight_decay concavity", registry.NOT_NEGATIVE),
    ("smoothness", registry.POSITIVE),
    ("seed", Range(lambda value: 0 <= value < 2**31, "0 <= seed < 2**31")),
    ("watch", Range(WATCHED.__contains__, f"one of {', '.join(WATCHED)}")),
    ("store", Range(STORES.__contains__, f"one of {', '.join(STORES)}")),
    ("precision", Range(PRECISIONS.__contains__, f"one of {', '.join(PRECISIONS)}")),
)


def check(
    experiment: Experiment, own_model: bool = False, own_data: bool = False
) -> None:
    """Raises a ValueError that names each wrong setting and what was expected.

    `own_model`: a model is given in Python, and `model` is the name of that.
    `own_data`: so is a federation, and `dataset` and `partition` are mere names.
    """
    _check_each_value(experiment)
    _check_model(experiment.method.model, own_model)
    if own_model and experiment.method.models:
        raise ValueError(
            "models are given and a task as well; give one of the two: a task is the "
            "one model of all clients"
        )
    # Here alone: methods load JAX, which a reader of a run folder does without.
    from pfljax import algorithms

    # Read where rows are given alone, but told in every run: it was meant for one.
    fingerprint.mode()
    method = experiment.method
    factory = algorithms.method(method.algorithm)
    check_option_names(method.algorithm, factory)
    registry.check("algorithm", Choice(method.algorithm, method.hyper), factory)
    from_python = []
    if own_model:
        from_python.append("model")
    if own_data:
        from_python += ["dataset", "partition"]
    chosen.check(experiment, from_python)
    # Last: what goes with an unknown name, nobody knows.
    check_values(experiment)


def check_option_names(algorithm: str, factory: Callable) -> None:
    """Raises a ValueError for an option that has the name of a setting.

    Neither a command line nor a sweep could tell the two apart.
    """
    for name in registry.options(factory):
        if name in FIELDS or name in OF_COMMANDS:
            raise ValueError(
                f"the method {algorithm!r} has an option {name!r}, which is the name "
                "of a setting; give it another name"
            )


def check_values(experiment: Experiment) -> None:
    """The same of types and ranges alone, without a look at methods and models.

    Whoever only reads a run folder needs no JAX for it.
    """
    _check_each_value(experiment)
    _raise_if_any(at_odds.problems(experiment))


def _check_each_value(experiment: Experiment) -> None:
    """The same of each setting alone."""
    _raise_if_any(_wrong_types(experiment))
    _raise_if_any(_out_of_range(experiment))  # which mean nothing of a wrong type
    for name, value in experiment.method.hyper:
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{name} is {value!r}, which no config can hold")


def _raise_if_any(problems: Iterable[str]) -> None:
    listed = list(problems)
    if listed:
        raise ValueError("; ".join(listed))


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
            advice = "your own: run(experiment, task=...) in Python"
            raise ValueError(f"{error}; {advice}") from None


def resolve(experiment: Experiment, name: str | None = None) -> Experiment:
    """The same run with the method's options, label and folder written out.

    `name` is that of a run without `out`, if not `experiment.folder`.
    """
    from pfljax import algorithms

    algorithm = experiment.method.algorithm
    factory = algorithms.method(algorithm)
    defaults = registry.defaults(factory)
    options = defaults | dict(experiment.method.hyper)
    method = Choice(algorithm, tuple(options.items()))
    hyper = registry.in_floats(method, factory).kwargs
    special = [f"{k}={v}" for k, v in hyper.items() if v != defaults.get(k)]
    experiment = chosen.with_server_optimizer(experiment, factory)
    optimizer = str(experiment.participation.server_optimizer)
    if optimizer not in ("none", chosen.own_optimizer(factory)):
        special.append(f"server_optimizer={optimizer}")
    label = experiment.output.label or " ".join([algorithm, *special])
    whole = with_options(chosen.in_floats(experiment), hyper)
    resolved = whole.replace(label=label)
    if resolved.output.out:
        return resolved
    out = begun_before.settled(resolved, name or experiment.folder)
    return resolved.replace(out=out)


def unresolved(experiment: Experiment) -> Experiment:
    """The same run without the label and the server's optimizer that `resolve` writes.

    With another method, both would be those of the method before.
    """
    from pfljax import algorithms

    factory = algorithms.method(experiment.method.algorithm)
    optimizer = experiment.participation.server_optimizer
    if str(optimizer) == chosen.own_optimizer(factory):
        experiment = experiment.replace(server_optimizer="none")
    label = experiment.output.label
    unlabelled = experiment.replace(label=None)
    # In a folder of any name, or it would look for one.
    written = resolve(unlabelled.replace(out="."))
    return unlabelled if written.output.label == label else experiment


def _wrong_types(experiment: Experiment) -> Iterator[str]:
    for name, value in flat(experiment).items():
        kind: Any = FIELDS[name].type
        if name != "hyper" and not _is_a(value, kind):
            yield f"{name} is {value!r}; expected {_kind_name(name, kind)}"


def _is_a(value: Any, kind: Any) -> bool:
    """Whether the value is of this type; True and False are no numbers."""
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return isinstance(value, tuple) and all(_is_a(v, item) for v in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind)


def _kind_name(name: str, kind: Any) -> str:
    if kind is Choice:
        return "a name"
    if kind == tuple[Choice, ...]:
        return f'names, such as "{SEVERAL[name]}"'
    return annotations.described(kind)


def _out_of_range(experiment: Experiment) -> Iterator[str]:
    values = flat(experiment)
    for names, limits in RANGES:
        for name in names.split():
            if values[name] is not None and not limits.takes(values[name]):
                yield f"{name} is {values[name]!r}; expected {limits.expected}"
