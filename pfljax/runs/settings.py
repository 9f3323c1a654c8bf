"""What a run is: the settings of `Experiment`, checked before anything is compiled."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pfljax import algorithms, registry

SELECTIONS = ("uniform", "by_size")
STORES = ("device", "host", "disk")
# These change no number of the run.
UNHASHED = ("out", "label", "baseline", "devices", "homes", "keep", "store")

RANGES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "clients cohort rounds epochs steps batch_size devices eval_every keep",
        lambda value: value >= 1,
        "at least 1",
    ),
    (
        "width",
        lambda value: value == "auto" or (isinstance(value, int) and value >= 1),
        'at least 1, or "auto"',
    ),
    ("lr lr_decay", lambda value: 0 < value < float("inf"), "a positive number"),
    ("test validation unseen", lambda value: 0 <= value < 1, "a share, 0 <= share < 1"),
    ("stragglers", lambda value: 0 <= value <= 1, "a share from 0 to 1"),
    ("momentum", lambda value: 0 <= value < 1, "0 <= momentum < 1"),
    ("weight_decay", lambda value: 0 <= value < float("inf"), "a finite number >= 0"),
    ("seed", lambda value: 0 <= value < 2**31, "0 <= seed < 2**31"),
    ("selection", SELECTIONS.__contains__, f"one of {', '.join(SELECTIONS)}"),
    ("store", STORES.__contains__, f"one of {', '.join(STORES)}"),
)


def setting(default: Any, text: str) -> Any:
    """A field with its help text."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One run. `dataset`, `partition`, `model`, `optimizer` may be
    "name:key=value,...".

    `hyper` holds the method's own options, given as a mapping.
    """

    algorithm: str = setting(
        "fedavg", "The method; `pfljax list algorithms` names them."
    )
    hyper: Any = setting((), 'The method\'s options, such as {"mu": 0.01}.')
    dataset: str = setting("digits", "The data set; `pfljax list datasets` names them.")
    partition: str = setting(
        "shards:per_client=2",
        "How rows are dealt to clients; `pfljax list partitions` names the ways.",
    )
    model: str = setting(
        "auto",
        'The model; `pfljax list models` names them. "auto" goes by the shape of x.',
    )
    clients: int | None = setting(
        20, "Number of clients; None takes the natural clients of the data set."
    )
    cohort: int = setting(5, "Clients that take part in a round.")
    rounds: int = setting(100, "Communication rounds.")
    epochs: int | None = setting(
        5, "Local passes over a client's rows a round; None if `steps` is given."
    )
    steps: int | None = setting(None, "Local steps a round, instead of `epochs`.")
    batch_size: int = setting(
        10, "Rows of a local step; the last batch of an epoch may be short."
    )
    lr: float = setting(0.05, "Local learning rate.")
    lr_decay: float = setting(1.0, "Round r = 1, 2, ... trains at lr * lr_decay**r.")
    momentum: float = setting(
        0.0, 'Momentum of "sgd", torch\'s convention; starts afresh every round.'
    )
    weight_decay: float = setting(
        0.0, 'Weight decay of "sgd", coupled with the gradient.'
    )
    optimizer: str = setting(
        "sgd", '"sgd", or any optax optimizer by name, such as "adam:b1=0.9".'
    )
    selection: str = setting(
        "uniform", '"uniform" without replacement, or "by_size" with replacement.'
    )
    stragglers: float = setting(
        0.0, "Share of each cohort that does only part of its work."
    )
    drop_stragglers: bool = setting(
        False, "Throw the work of stragglers away, as FedAvg does."
    )
    test: float = setting(0.2, "Share of each client's rows held for testing.")
    validation: float = setting(0.1, "Share of each client's rows held for validation.")
    stratified: bool = setting(False, "Split each client's rows class by class.")
    test_from: str = setting(
        "clients",
        '"clients" own rows, the "official" test set, its "official_classes", or the '
        'natural client\'s, "official_own".',
    )
    rows: str = setting("train", 'Deal the official "train" rows, or "all".')
    noise: str = setting(
        "none",
        'Wrong training labels: "pair:rate=0.1", "symmetric:rate=0.2".',
    )
    unseen: float = setting(
        0.0, "Share of the clients held out of training and judged as newcomers."
    )
    seed: int = setting(0, "Seeds partition, parameters, cohorts and minibatches.")
    eval_every: int = setting(10, "Rounds between two evaluations.")
    trained: bool = setting(
        False, "Judge clients also after their own local training, before averaging."
    )
    width: int | str | None = setting(
        None, 'Clients that train at once on a device; "auto" tries, None knows.'
    )
    devices: int | None = setting(
        None, "Devices that share the cohort; None takes what is fastest here."
    )
    homes: bool = setting(
        False,
        "Rows and states of a client lie on one device, which trains it; else cohorts "
        "are dealt anew.",
    )
    store: str = setting(
        "device",
        'Where client states lie: "device", or more of them in "host" memory, "disk".',
    )
    keep: int = setting(2, "Checkpoints to keep.")
    baseline: str | None = setting(
        None,
        "Run folder of local training, for the share of clients worse off than it.",
    )
    label: str | None = setting(None, "Name in tables and figures.")
    out: str | None = setting(None, "Run folder; None is runs/DATASET-ALGORITHM-sSEED.")

    def __post_init__(self):
        try:
            pairs = tuple(sorted(dict(self.hyper).items()))
        except (TypeError, ValueError):
            given = repr(self.hyper)
            raise ValueError(f"hyper is {given}; expected options by name") from None
        object.__setattr__(self, "hyper", pairs)
        for field in dataclasses.fields(self):  # 1 and 1.0 are one run: one digest
            if field.type is float:
                value = _number(getattr(self, field.name), 0.0)
                object.__setattr__(self, field.name, value)

    @property
    def folder(self) -> str:
        """The run folder: `out`, or a name made of data set, method and seed."""
        dataset = registry.parse(self.dataset).name
        return self.out or f"runs/{dataset}-{self.algorithm}-s{self.seed}"

    def replace(self, **changes: Any) -> "Experiment":
        """A copy with some settings changed."""
        return dataclasses.replace(self, **changes)


def _number(value: Any, like: Any) -> Any:
    """`value`, as a float where `like` is one and `value` a whole number."""
    return float(value) if type(value) is int and type(like) is float else value


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """The settings as JSON types; `from_dict` undoes it."""
    fields = dataclasses.asdict(experiment)
    return fields | {"hyper": dict(experiment.hyper)}


def from_dict(fields: Mapping[str, Any]) -> Experiment:
    """The experiment of a config.json; a ValueError lists the known keys."""
    if not isinstance(fields, Mapping) or "algorithm" not in fields:
        raise ValueError("expected a JSON object with the settings of an experiment")
    known = {field.name for field in dataclasses.fields(Experiment)}
    for key in fields:
        registry.find("setting", dict.fromkeys(known, print), key)
    return Experiment(**fields)


def digest(experiment: Experiment) -> str:
    """SHA-256 of all settings that change a number of the rounds done so far."""
    unhashed = UNHASHED if looks_ahead(experiment) else (*UNHASHED, "rounds")
    fields = {k: v for k, v in to_dict(experiment).items() if k not in unhashed}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def looks_ahead(experiment: Experiment) -> bool:
    """Whether its method goes by how many rounds there will be."""
    factory = algorithms.methods()[experiment.algorithm]
    return bool(registry.given(factory, rounds=experiment.rounds))


def difference(old: Experiment, new: Experiment) -> list[str]:
    """The settings that differ and change a number, as "name: old -> new"."""
    a, b = to_dict(old), to_dict(new)
    return [f"{k}: {a[k]} -> {b[k]}" for k in a if k not in UNHASHED and a[k] != b[k]]


def check(experiment: Experiment, own_model: bool = False) -> None:
    """Raises a ValueError that names each wrong setting and what was expected.

    `own_model`: a model is given in Python, and `model` is the name of that.
    """
    problems = list(_wrong_types(experiment)) or list(_out_of_range(experiment))
    if problems:
        raise ValueError("; ".join(problems))
    _check_model(experiment.model, own_model)
    factory = algorithms.method(experiment.algorithm)
    chosen = registry.Choice(experiment.algorithm, experiment.hyper)
    registry.check("algorithm", chosen, factory)
    for name, value in experiment.hyper:
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{name} is {value!r}, which no config can hold")
        if isinstance(value, int | float) and not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value}; expected a finite number >= 0")


def names_own_model(model: str) -> bool:
    """Whether no model of pfljax has this name: it can only be given in Python."""
    from pfljax.models import MODELS

    return model != "auto" and registry.parse(model).name not in MODELS


def _check_model(model: str, own: bool) -> None:
    from pfljax.models import MODELS

    if own and not names_own_model(model):
        raise ValueError(
            f"model is {model!r}, the name of one of pfljax, but a task is given; "
            "give your model a name of its own, such as model='mine'"
        )
    if not own and names_own_model(model):
        try:
            registry.find("model", MODELS, registry.parse(model).name)
        except ValueError as error:
            told = f"{error}; your own: run(experiment, federation, task=...) in Python"
            raise ValueError(told) from None


def resolve(experiment: Experiment) -> Experiment:
    """The same run with the method's options, label and folder written out."""
    factory = algorithms.methods()[experiment.algorithm]
    defaults = registry.defaults(factory)
    hyper = defaults | {
        name: _number(value, defaults.get(name)) for name, value in experiment.hyper
    }
    special = [f"{k}={v}" for k, v in hyper.items() if v != defaults.get(k)]
    label = experiment.label or " ".join([experiment.algorithm, *special])
    return experiment.replace(hyper=hyper, label=label, out=experiment.folder)


def _wrong_types(e: Experiment) -> Iterator[str]:
    for field in dataclasses.fields(Experiment):
        value = getattr(e, field.name)
        kind: Any = field.type
        odd = isinstance(value, bool) and kind is not bool
        if field.name != "hyper" and (odd or not isinstance(value, kind)):
            name = getattr(kind, "__name__", str(kind))
            yield f"{field.name} is {value!r}; expected {name}"


def _out_of_range(e: Experiment) -> Iterator[str]:
    for names, fits, expected in RANGES:
        for name in names.split():
            value = getattr(e, name)
            if value is not None and not fits(value):
                yield f"{name} is {value!r}; expected {expected}"
    yield from _at_odds(e)


def _at_odds(e: Experiment) -> Iterator[str]:
    if (e.epochs is None) == (e.steps is None):
        yield (
            f"epochs is {e.epochs} and steps is {e.steps}; give exactly one of them, "
            "and None for the other: --epochs None --steps 3"
        )
    if e.clients is not None and e.cohort > e.clients > 0:
        yield (
            f"cohort is {e.cohort}, but there are {e.clients} clients; "
            f"choose cohort <= {e.clients}"
        )
    if e.homes and e.store != "device":
        yield (
            f"homes is set, but store is {e.store!r}, whose states lie on no device; "
            'choose store="device"'
        )
    if e.drop_stragglers and not e.stragglers:
        yield "drop_stragglers is set, but stragglers is 0; give their share"
    if e.stragglers and not round(e.stragglers * e.cohort):
        yield f"stragglers is {e.stragglers}, which is nobody in a cohort of {e.cohort}"
    if e.optimizer.partition(":")[0] != "sgd" and (e.momentum or e.weight_decay):
        yield (
            f"momentum and weight_decay belong to sgd; give {e.optimizer!r} "
            "its own options, such as adamw:weight_decay=0.01"
        )
