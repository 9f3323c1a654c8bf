"""The settings of a run, declared once: `Experiment`.

A field is a setting: its type, its range and its default. Its heading and help stand in
the docstring. The command line, config.json, the checks and `--over` read these.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

from pfljax import registry
from pfljax.registry import (
    BELOW_ONE,
    INT32,
    POSITIVE,
    AtLeastOne,
    Component,
    Count,
    NotNegative,
    Positive,
    Range,
    Share,
    annotations,
    docstrings,
)
from pfljax.runs import names

Record = TypeVar("Record")
BelowOne = Annotated[float, BELOW_ONE]
Part = Annotated[
    float, Range(lambda value: 0 <= value < 1, "a share, 0 <= share < 1", on_host=True)
]
Epochs = Annotated[int | float, POSITIVE, INT32]
# Surrogates are what Python makes of bytes that are no UTF-8.
Text = Annotated[
    str,
    Range(
        lambda text: not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text),
        "text without zero bytes, in UTF-8",
    ),
]


def _component(value: str | Component) -> Component:
    """The component that a text names."""
    return registry.parse(value) if isinstance(value, str) else value


def _components(value: str | list | tuple | None) -> tuple[Component, ...]:
    """The components of a sequence, or of one text with spaces or commas in it."""
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list | tuple | None):
        return value
    components: list[Component] = []
    for part in value or ():
        texts = registry.split(part) if isinstance(part, str) else [part]
        components += map(_component, texts)
    return tuple(components)


def setting(default: Any, converter: Callable[[Any], Any]) -> Any:
    """A field that is also written as text."""
    return dataclasses.field(default=default, metadata={"converter": converter})


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def _record(cls: type[Record]) -> type[Record]:
    """A frozen dataclass, of which type checkers know what the converters take."""
    return dataclasses.dataclass(frozen=True)(cls)


@_record
class Experiment:
    """One run.

    A component is written as an object or as its text:
    `Experiment("ditto:lam=0.5", dataset="mnist:every=10", rounds=3)`.

    Method:
      algorithm: The method, with its options: "ditto:lam=1.0". See `pfljax list
        algorithms`.
      model: The model. "auto" chooses by the shape of x. See `pfljax list models`.
      models: The models of clients of several architectures, instead of `model`. Client
        i has number i mod the length of the list. A group of models, such as
        "htcnn_yi", may stand in it.
      proxy: The small model that all clients share, for methods that use one. "auto" is
        the smallest of `models`.
      precision: The model computes in "float32". "tf32" rounds the factors of products
        where the device can; "bfloat16" rounds all but parameters and losses.

    Data:
      dataset: The data set. See `pfljax list datasets`.
      partition: How examples are divided over clients, such as "dirichlet:alpha=0.5".
        See `pfljax list partitions`.
      clients: The number of clients. None takes the natural clients of the data set.
      test: The share of each client's examples held for testing.
      validation: The share of each client's examples held for validation.
      stratified: Split each client's examples class by class.
      test_from: Test on the "clients" own examples, the "official" test set, its
        "official_classes" that the client holds, or the natural client's part of it,
        "official_own".
      examples: Deal the official "train" examples, or "all".
      noise: Wrong training labels, such as "pair:rate=0.1" or "symmetric:rate=0.2".
        "poison:attackers=0.2" gives them to malicious clients alone.
      unseen: The share of clients held out of training and evaluated as newcomers.
      public: The share of examples that the server holds, for methods that use them.

    Training:
      epochs: Local passes over a client's examples in a round. 0.5 is half of the steps
        of one. None if `steps` is given.
      steps: Local steps in a round, instead of `epochs`.
      batch_size: Examples in a local step. The last batch of an epoch may be short.
      lr: The local learning rate.
      lr_decay: Round r = 1, 2, ... trains at lr * lr_decay**r.
      schedule: Multiples of lr by round, or by a round's local step: an optax schedule,
        such as "cosine:decay_steps=100" or
        "warmup_cosine:warmup_steps=5,decay_steps=50,by=step". See `pfljax list
        schedules`.
      momentum: The momentum of "sgd", in torch's convention. It starts anew in every
        round.
      weight_decay: The weight decay of "sgd", coupled with the gradient.
      optimizer: "sgd", or an optax optimizer by name, such as "adam:b1=0.9".

    Participation:
      rounds: Communication rounds.
      cohort: Clients that take part in a round.
      selection: Who takes part: "uniform", "by_size" with replacement, "tifl:tiers=4".
        See `pfljax list selections`.
      stragglers: The share of each cohort that does only part of its work.
      drop_stragglers: Drop the work of stragglers, as FedAvg does.
      profile: The devices of the clients, by which rounds take virtual seconds, such as
        "speed_groups" or "lognormal:sigma=1". See `pfljax list profiles`.
      deadline: The virtual seconds that a round may take. Slower clients do not report.
      mode: Rounds are "sync", or asynchronous: "fedasync:staleness=polynomial" or
        "fedbuff:buffer=10", in which `cohort` clients train at any time. See `pfljax
        list modes`.
      channel: What happens to uploads on their way, such as "clip:norm=1.0",
        "top_k:share=0.01", "lost:share=0.1" or "sign_flip:attackers=0.2". They act in
        the order attack, clip, compress, lose. See `pfljax list channels`.
      aggregation: A robust value instead of the uploads' mean, such as "median" or
        "krum:byzantine=2". See `pfljax list aggregations`.
      server_optimizer: An optimizer that steps the server's model along the aggregate,
        such as "fedadam:learning_rate=0.01" or "sgd:learning_rate=1.0". With "none" the
        aggregate is the new model. See `pfljax list server_optimizers`.

    Evaluation:
      eval_every: Rounds between two evaluations.
      patience: Stop after this many evaluations without a better mean over clients of
        `monitor` on validation examples. None runs all rounds.
      monitor: What `patience` goes by: accuracy, top5, loss or brier.
      eval_after_training: Also evaluate clients after their own local training, before
        averaging.
      ood_examples: The number of examples, from all clients, on which to evaluate the
        detection of classes that a client does not hold (AUROC of the entropy of its
        predictions). 0 skips it.
      dissimilarity: Record at every evaluation how far clients' gradients at the
        server's model are apart (B, and their variance), and its loss over all training
        examples.
      smoothness: L, with which all clients' losses are smooth. Dissimilarity then has
        rho as well, by which FedProx's theorem expects the loss to fall.
      concavity: L_- of rho: no Hessian of a client's loss is below minus this. 0 is
        convex.
      baseline: The folder of a run of "local", for the share of clients worse off.

    Machine:
      width: Clients that train at once on a device. "auto" measures, None is the
        platform's default.
      devices: Devices that share the cohort. None takes what is fastest here.
      pin_clients: Keep a client's examples and states on one device, which trains it.
        Otherwise cohorts are divided anew in each round.
      state_storage: Keep client states on the "device", in "host" memory or on "disk".

    Output:
      out: The run folder. None is runs/DATASET-ALGORITHM-sSEED, followed by the
        settings that are not at their defaults.
      label: The name in tables and figures.
      log: Where the log goes beside metrics.jsonl: csv, tensorboard or wandb, or
        several, as in "csv,wandb:project=mine".
      keep_checkpoints: Checkpoints to keep.
      seed: Seeds the partition, parameters, cohorts and minibatches.
    """

    algorithm: Component = setting(default="fedavg", converter=_component)
    model: Component = setting(default="auto", converter=_component)
    models: tuple[Component, ...] = setting(default=(), converter=_components)
    proxy: Component = setting(default="auto", converter=_component)
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"

    dataset: Component = setting(default="digits", converter=_component)
    partition: Component = setting(default="shards:per_client=2", converter=_component)
    clients: AtLeastOne | None = 20
    test: Part = 0.2
    validation: Part = 0.1
    stratified: bool = False
    test_from: Literal["clients", "official", "official_classes", "official_own"] = (
        "clients"
    )
    examples: Literal["train", "all"] = "train"
    noise: Component = setting(default="none", converter=_component)
    unseen: Part = 0.0
    public: Part = 0.0

    epochs: Epochs | None = 5
    steps: AtLeastOne | None = None
    batch_size: AtLeastOne = 10
    lr: Positive = 0.05
    lr_decay: Positive = 1.0
    schedule: Component = setting(default="constant", converter=_component)
    momentum: BelowOne = 0.0
    weight_decay: NotNegative = 0.0
    optimizer: Component = setting(default="sgd", converter=_component)

    rounds: AtLeastOne = 100
    cohort: AtLeastOne = 5
    selection: Component = setting(default="uniform", converter=_component)
    stragglers: Share = 0.0
    drop_stragglers: bool = False
    profile: Component = setting(default="none", converter=_component)
    deadline: Positive | None = None
    mode: Component = setting(default="sync", converter=_component)
    channel: tuple[Component, ...] = setting(default=(), converter=_components)
    aggregation: tuple[Component, ...] = setting(default=(), converter=_components)
    server_optimizer: Component = setting(default="none", converter=_component)

    eval_every: AtLeastOne = 10
    patience: AtLeastOne | None = None
    monitor: Literal["accuracy", "top5", "loss", "brier"] = "accuracy"
    eval_after_training: bool = False
    ood_examples: Count = 0
    dissimilarity: bool = False
    smoothness: Positive | None = None
    concavity: NotNegative = 0.0
    baseline: Text | None = None

    width: AtLeastOne | Literal["auto"] | None = None
    devices: AtLeastOne | None = None
    pin_clients: bool = False
    state_storage: Literal["device", "host", "disk"] = "device"

    out: Text | None = None
    label: Text | None = None
    log: tuple[Component, ...] = setting(default=(), converter=_components)
    keep_checkpoints: AtLeastOne = 2
    seed: Count = 0

    def __post_init__(self) -> None:
        for name, field in FIELDS.items():
            # A frozen dataclass lets its own constructor assign in this way alone.
            object.__setattr__(self, name, _convert(field, getattr(self, name)))

    replace = dataclasses.replace

    @property
    def folder(self) -> str:
        """The run folder: `out`, or a name of data set, method, seed and what differs.

        See `runs/names.py`.
        """
        plain = f"runs/{self.dataset.name}-{self.algorithm.name}-s{self.seed}"
        return self.out or names.special(plain, differing(self))


FIELDS = {field.name: field for field in dataclasses.fields(Experiment)}
# These change no number of the rounds that are done.
UNHASHED = (
    "out", "label", "baseline", "devices", "pin_clients", "keep_checkpoints",
    "state_storage", "log", "patience", "monitor",
)  # fmt: skip
HELP = docstrings.sections(Experiment.__doc__)  # heading -> setting -> text


def _convert(field: dataclasses.Field, value: Any) -> Any:
    """A value as the experiment keeps it; one of a wrong type is left to `check`."""
    # By name: readers of settings need no NumPy. Traced numbers of a sweep stay.
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    converter = field.metadata.get("converter")
    if converter is not None:
        try:
            return converter(value)
        except ValueError as error:
            raise ValueError(f"{field.name}: {error}") from None
    # 1 and 1.0 are one run, so they must have one digest.
    if field.name == "epochs" and type(value) is float and value.is_integer():
        return int(value)
    if type(value) is int and annotations.is_float(field.type):
        return float(value)
    return value


def differing(experiment: Experiment) -> dict[str, Any]:
    """The settings and options that make it another run than that of the defaults.

    Beside the names of data set and method, and the seed.
    """
    from pfljax import algorithms  # here alone: readers of settings need no JAX

    method = experiment.algorithm
    defaults = registry.defaults(algorithms.method(method.name))
    different = {
        name: value
        for name, value in method.args
        if name not in defaults or defaults[name] != value
    }
    default = Experiment(dataset=experiment.dataset.name)
    for name, value in vars(experiment).items():
        is_named = name in ("algorithm", "seed")
        if not is_named and name not in UNHASHED and value != getattr(default, name):
            different[name] = value
    return different


def label(experiment: Experiment) -> str:
    """The name in tables: `label`, or the method with the options that differ."""
    if experiment.label:
        return experiment.label
    from pfljax import algorithms

    method = experiment.algorithm
    defaults = registry.defaults(algorithms.method(method.name))
    words = [f"{name}={value}" for name, value in method.args]
    texts = [f"{name}={value}" for name, value in defaults.items()]
    words = [word for word in words if word not in texts]
    if experiment.server_optimizer.name != "none":
        words.append(f"server_optimizer={experiment.server_optimizer}")
    return " ".join([method.name, *words])
