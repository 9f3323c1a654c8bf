"""What a run is: `Experiment`, whose settings lie in records by what they speak of.

A setting has one name, whatever its group: `Experiment("ditto", rounds=3)` in Python,
`--rounds 3` on the command line, `--over rounds 3 6` in a sweep. Only where it is read
does the group show: `experiment.participation.rounds`, and so in config.json.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from pfljax import registry
from pfljax.registry import Choice
from pfljax.runs import names
from pfljax.runs.groups import (
    UNHASHED,
    Data,
    Evaluation,
    Machine,
    Method,
    Output,
    Participation,
    Training,
    setting,
)


class Settings(TypedDict, total=False):
    """Every setting by its name, as it may be written; a Choice also as its text.

    The names of `Experiment(...)` and `replace(...)` stand here for editors and type
    checkers, which cannot derive them from the records. A test compares the two.
    """

    algorithm: str | Choice
    model: str | Choice
    models: str | Sequence[str | Choice] | None
    proxy: str | Choice
    precision: str
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
    epochs: int | float | None
    steps: int | None
    batch_size: int
    lr: float
    lr_decay: float
    schedule: str | Choice
    momentum: float
    weight_decay: float
    optimizer: str | Choice
    rounds: int
    cohort: int
    selection: str | Choice
    stragglers: float
    drop_stragglers: bool
    profile: str | Choice
    deadline: float | None
    mode: str | Choice
    channel: str | Sequence[str | Choice] | None
    aggregation: str | Sequence[str | Choice] | None
    server_optimizer: str | Choice
    eval_every: int
    patience: int | None
    watch: str
    trained: bool
    foreign: int
    dissimilarity: bool
    smoothness: float | None
    concavity: float
    baseline: str | None
    width: int | str | None
    devices: int | None
    homes: bool
    store: str
    out: str | None
    label: str | None
    log: str | Sequence[str | Choice] | None
    keep: int
    seed: int


PLACE = '; options of a method stand behind its name, as in "ditto:lam=1.0"'


@dataclasses.dataclass(frozen=True, init=False)
class Experiment:
    """One run: its settings by group, and the seed, which all groups draw from.

    Built from flat names alone, for a group changes nothing about a setting:
    `Experiment("ditto:lam=0.5", dataset="mnist:every=10", rounds=3)`.
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
        self, method: str | Choice | None = None, /, **settings: Unpack[Settings]
    ) -> None:
        values: dict[str, Any] = dict(settings)
        if method is not None:
            values["algorithm"] = method
        if "hyper" in values:
            raise ValueError(_of_hyper(values.get("algorithm"), values["hyper"]))
        for name in values:
            if name not in GIVEN:
                raise ValueError(registry.unknown("setting", GIVEN, name) + PLACE)
        values |= _method(values.get("algorithm"))
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
        """The run folder: `out`, or a name of data set, method, seed and what differs.

        See `runs/names.py`.
        """
        return self.output.out or names.special(default_folder(self), differing(self))

    def replace(self, **settings: Unpack[Settings]) -> "Experiment":
        """A copy with some settings changed; another method has options of its own."""
        kept = flat(self)
        method = Choice(kept["algorithm"], kept.pop("hyper"))
        changed: Any = kept | {"algorithm": method} | settings
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
# Those that can be given: the method's options stand behind its name.
GIVEN = {name: field for name, field in FIELDS.items() if name != "hyper"}


def with_options(experiment: Experiment, options: Mapping[str, Any]) -> Experiment:
    """The experiment whose method has these options, and no others."""
    method = Choice(experiment.method.algorithm, options)
    return experiment.replace(algorithm=method)


def default_folder(experiment: Experiment) -> str:
    """The folder of a run whose settings all have their defaults."""
    dataset = experiment.data.dataset.name
    algorithm = experiment.method.algorithm
    return f"runs/{dataset}-{algorithm}-s{experiment.seed}"


def differing(experiment: Experiment) -> dict[str, Any]:
    """What makes it another run than that of the defaults, by name.

    Beside the names of data set and method, and the seed.
    """
    from pfljax import algorithms  # here alone: readers of settings need no JAX

    factory = algorithms.method(experiment.method.algorithm)
    options = registry.defaults(factory)
    different = {
        name: value
        for name, value in experiment.method.hyper
        if name not in options or options[name] != value
    }
    defaults = flat(Experiment(dataset=experiment.data.dataset.name))
    for name, value in flat(experiment).items():
        is_named = name in ("algorithm", "hyper", "seed")
        if not is_named and name not in UNHASHED and value != defaults[name]:
            different[name] = value
    return different


def _method(method: Any) -> dict[str, Any]:
    """The name of a method and its options, of its text or its Choice; {} of None."""
    if method is None:
        return {}
    choice = _parsed("algorithm", method)
    if not isinstance(choice, Choice):
        return {}  # of a wrong type, as `check` says
    return {"algorithm": choice.name, "hyper": _pairs("algorithm", choice.args)}


def _of_hyper(method: Any, options: Any) -> str:
    """What is wrong with `hyper=`, and how it is written."""
    if method is None:
        method = FIELDS["algorithm"].default
    name = method.name if isinstance(method, Choice) else method
    try:
        text = str(Choice(name, _pairs("hyper", options)))
    except ValueError:
        text = f"{name}:option=value"
    return (
        f"hyper is {options!r}, but a method's options stand behind its name; write "
        f"algorithm={text!r}, or a Choice"
    )


def _as_kept(field: dataclasses.Field, value: Any) -> Any:
    """A setting as its record keeps it; one of a wrong type as it is, for `check`."""
    value = _of_python(value)
    if field.type is Choice:
        return _parsed(field.name, value)
    if field.type == tuple[Choice, ...]:
        return _choices(field.name, value)
    if field.name == "epochs" and type(value) is float and value.is_integer():
        return int(value)
    if field.type is float and type(value) is int:
        # 1 and 1.0 are one run, so they must have one digest.
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf  # as 1e400 is
    return value


def _of_python(value: Any) -> Any:
    """A number of NumPy's, or an array of one, as Python's own."""
    # By name: readers of settings need no NumPy. Traced numbers of a sweep stay.
    of_numpy = type(value).__module__ == "numpy"
    return value.item() if of_numpy and getattr(value, "shape", None) == () else value


def _parsed(setting: str, value: Any) -> Any:
    """A Choice of its text."""
    if not isinstance(value, str):
        return value
    try:
        return registry.parse(value)
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from None


def _choices(setting: str, value: Any) -> Any:
    """Choices of a sequence of their texts, or of one text with spaces between them.

    Or commas: "cnn,mlp:hidden=(8,4),resnet18" are three.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list | tuple):
        return value
    choices = []
    for text in value:
        parts = registry.split(text) if isinstance(text, str) else [text]
        choices += [_parsed(setting, part) for part in parts]
    return tuple(choices)


def _pairs(setting: str, options: Any) -> tuple[tuple[str, Any], ...]:
    """Options by name, sorted: their order does not matter."""
    try:
        pairs = sorted(dict(options).items())
        return tuple((name, _of_python(value)) for name, value in pairs)
    except (TypeError, ValueError):
        raise ValueError(
            f"{setting} has options {options!r}; expected options by name"
        ) from None


def flat(experiment: Experiment, names: Iterable[str] = ()) -> dict[str, Any]:
    """The settings by name, as their records keep them; of `names`, or all."""
    values = {"seed": experiment.seed}
    for group in GROUPS:
        values |= vars(getattr(experiment, group))
    return {name: values[name] for name in names or FIELDS}
