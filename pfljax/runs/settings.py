"""What a run is: `Experiment`, whose settings lie in records by what they speak of.

A setting has one name, whatever its group: `Experiment("ditto", rounds=3)` in Python,
`--rounds 3` on the command line, `--over rounds 3 6` in a sweep. Only where it is read
does the group show: `experiment.participation.rounds`, and so in config.json.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from pfljax import registry
from pfljax.registry import Choice


def setting(default: Any, text: str) -> Any:
    """A field with its help text."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Method:
    """The method, its own options, and the model that it trains."""

    algorithm: str = setting(
        "fedavg", "The method; `pfljax list algorithms` names them."
    )
    hyper: tuple[tuple[str, Any], ...] = setting(
        (), 'The method\'s options, such as {"mu": 0.01}.'
    )
    model: Choice = setting(
        Choice("auto"),
        'The model; `pfljax list models` names them. "auto" goes by the shape of x.',
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """Which rows there are, and which client has them for what."""

    dataset: Choice = setting(
        Choice("digits"), "The data set; `pfljax list datasets` names them."
    )
    partition: Choice = setting(
        registry.choose("shards", per_client=2),
        "How rows are dealt to clients; `pfljax list partitions` names the ways.",
    )
    clients: int | None = setting(
        20, "Number of clients; None takes the natural clients of the data set."
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
    noise: Choice = setting(
        Choice("none"),
        'Wrong training labels: "pair:rate=0.1", "symmetric:rate=0.2".',
    )
    unseen: float = setting(
        0.0, "Share of the clients held out of training and judged as newcomers."
    )
    public: float = setting(
        0.0, "Share of the rows that the server holds, for methods that use them."
    )


@dataclasses.dataclass(frozen=True)
class Training:
    """What a client of a cohort does with its rows."""

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
    optimizer: Choice = setting(
        Choice("sgd"), '"sgd", or any optax optimizer by name, such as "adam:b1=0.9".'
    )


@dataclasses.dataclass(frozen=True)
class Participation:
    """How many rounds there are, and who takes part in one."""

    rounds: int = setting(100, "Communication rounds.")
    cohort: int = setting(5, "Clients that take part in a round.")
    selection: Choice = setting(
        Choice("uniform"),
        '"uniform" without replacement, or "by_size" with replacement.',
    )
    stragglers: float = setting(
        0.0, "Share of each cohort that does only part of its work."
    )
    drop_stragglers: bool = setting(
        False, "Throw the work of stragglers away, as FedAvg does."
    )
    channel: tuple[Choice, ...] = setting(
        (),
        'What happens to uploads, in this order: "clip:norm=1.0", "gaussian:std=0.1", '
        '"median", "trimmed_mean:trim=0.1", "krum:byzantine=1".',
    )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """When clients are judged, and against what."""

    eval_every: int = setting(10, "Rounds between two evaluations.")
    trained: bool = setting(
        False, "Judge clients also after their own local training, before averaging."
    )
    baseline: str | None = setting(
        None,
        "Run folder of local training, for the share of clients worse off than it.",
    )


@dataclasses.dataclass(frozen=True)
class Machine:
    """How the work is laid out on this machine."""

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


@dataclasses.dataclass(frozen=True)
class Output:
    """What is written, under which names."""

    out: str | None = setting(None, "Run folder; None is runs/DATASET-ALGORITHM-sSEED.")
    label: str | None = setting(None, "Name in tables and figures.")
    keep: int = setting(2, "Checkpoints to keep.")


class Settings(TypedDict, total=False):
    """Every setting by its name, as it may be written; a Choice also as its text.

    The names of `Experiment(...)` and `replace(...)` stand here for editors and type
    checkers, which cannot derive them from the records. A test compares the two.
    """

    algorithm: str
    hyper: Mapping[str, Any]
    model: str | Choice
    dataset: str | Choice
    partition: str | Choice
    clients: int | None
    test: float
    validation: float
    stratified: bool
    test_from: str
    rows: str
    noise: str | Choice
    unseen: float
    public: float
    epochs: int | None
    steps: int | None
    batch_size: int
    lr: float
    lr_decay: float
    momentum: float
    weight_decay: float
    optimizer: str | Choice
    rounds: int
    cohort: int
    selection: str | Choice
    stragglers: float
    drop_stragglers: bool
    channel: Sequence[str | Choice]
    eval_every: int
    trained: bool
    baseline: str | None
    width: int | str | None
    devices: int | None
    homes: bool
    store: str
    out: str | None
    label: str | None
    keep: int
    seed: int


@dataclasses.dataclass(frozen=True, init=False)
class Experiment:
    """One run: its settings by group, and the seed, which all groups draw from.

    Built from flat names alone, for a group changes nothing about a setting:
    `Experiment("ditto", hyper={"lam": 0.5}, dataset="mnist:every=10", rounds=3)`.
    """

    method: Method
    data: Data
    training: Training
    participation: Participation
    evaluation: Evaluation
    machine: Machine
    output: Output
    seed: int = setting(0, "Seeds partition, parameters, cohorts and minibatches.")

    def __init__(
        self, method: str | None = None, /, **settings: Unpack[Settings]
    ) -> None:
        values: dict[str, Any] = dict(settings)
        if method is not None:
            values["algorithm"] = method
        for name in values:
            registry.find("setting", FIELDS, name)
        values = {name: _as_kept(FIELDS[name], value) for name, value in values.items()}
        seed = values.pop("seed", FIELDS["seed"].default)
        grouped: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
        for name, value in values.items():
            grouped[HOME[name]][name] = value
        # A frozen dataclass lets its own constructor assign in this way alone.
        object.__setattr__(self, "seed", seed)
        for group, record in GROUPS.items():
            object.__setattr__(self, group, record(**grouped[group]))

    @property
    def folder(self) -> str:
        """The run folder: `out`, or a name made of data set, method and seed."""
        dataset = self.data.dataset.name
        algorithm = self.method.algorithm
        return self.output.out or f"runs/{dataset}-{algorithm}-s{self.seed}"

    def replace(self, **settings: Unpack[Settings]) -> "Experiment":
        """A copy with some settings changed."""
        changed: Any = flat(self) | settings
        return Experiment(**changed)


GROUPS: dict[str, Any] = {  # the records by their field of Experiment
    field.name: field.type
    for field in dataclasses.fields(Experiment)
    if dataclasses.is_dataclass(field.type)
}
HOME = {  # the group of a setting
    field.name: group
    for group, record in GROUPS.items()
    for field in dataclasses.fields(record)
}
FIELDS: dict[str, dataclasses.Field] = {  # each setting's type, default and help
    field.name: field
    for record in (*GROUPS.values(), Experiment)
    for field in dataclasses.fields(record)
    if field.name not in GROUPS
}


def _as_kept(field: dataclasses.Field, value: Any) -> Any:
    """A setting as its record keeps it; one of a wrong type as it is, for `check`."""
    if field.name == "hyper":
        return _pairs(value)
    if field.type is Choice:
        return _parsed(value)
    if field.name == "channel" and isinstance(value, list | tuple):
        return tuple(_parsed(one) for one in value)
    if field.type is float:
        return number(value, 0.0)
    return value


def _parsed(value: Any) -> Any:
    """A Choice of its text."""
    return registry.parse(value) if isinstance(value, str) else value


def _pairs(options: Any) -> tuple[tuple[str, Any], ...]:
    """Options by name, sorted: their order does not matter."""
    try:
        return tuple(sorted(dict(options).items()))
    except (TypeError, ValueError):
        raise ValueError(f"hyper is {options!r}; expected options by name") from None


def number(value: Any, like: Any) -> Any:
    """`value`, as a float where `like` is one and `value` a whole number.

    1 and 1.0 are one run, so they must have one digest.
    """
    return float(value) if type(value) is int and type(like) is float else value


def flat(experiment: Experiment, names: Iterable[str] = ()) -> dict[str, Any]:
    """The settings by name, as their records keep them; of `names`, or all."""
    values = {"seed": experiment.seed}
    for group in GROUPS:
        values |= vars(getattr(experiment, group))
    return {name: values[name] for name in names or FIELDS}
