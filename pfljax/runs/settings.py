"""The settings of a run, declared once: `Experiment`.

A field gives the type, range and default of a setting; the docstring gives its heading
and help. The command line, config.json, the checks and `--over` read these.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

from pfljax.core import annotations, factories
from pfljax.core.components import Component, convert, convert_all
from pfljax.core.ranges import (
    INT32,
    POSITIVE,
    AtLeastOne,
    BelowOne,
    Count,
    NotNegative,
    Positive,
    Range,
    Share,
)
from pfljax.runs import docstrings, names

Record = TypeVar("Record")
Part = Annotated[
    float, Range(lambda value: 0 <= value < 1, "a share, 0 <= share < 1", on_host=True)
]
Epochs = Annotated[int | float, POSITIVE, INT32]
# Also without zero bytes and surrogates, which no name of a file can have.
Text = Annotated[str, Range(str.isprintable, "printable text")]


def setting(default: Any, converter: Callable[[Any], Any]) -> Any:
    """A field that takes text as well, which the converter parses."""
    return dataclasses.field(default=default, metadata={"converter": converter})


def _split_words(value: Any) -> Any:
    """The words of a text, or of a sequence of texts; any other value as it is."""
    try:
        text = value if isinstance(value, str) else " ".join(value)
    except TypeError:
        return value
    return tuple(text.replace(",", " ").split())


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def _record(cls: type[Record]) -> type[Record]:
    """A frozen dataclass whose converters type checkers know."""
    return dataclasses.dataclass(frozen=True)(cls)


@_record
class Experiment:
    """The settings of a run.

    A component is given as an object or as its text:
    `Experiment("ditto:lam=0.5", dataset="mnist:every=10", rounds=3)`.

    Method:
      algorithm: The method with its options, such as "ditto:lam=1.0". See `pfljax list
        algorithms`.
      model: The model. "auto" chooses one by the shape of x. See `pfljax list models`.
      models: The models of clients with different architectures, instead of `model`.
        Client i gets model i mod their number. A group of models, such as "htcnn_yi",
        counts as its members.
      proxy: The small model that all clients share, for methods that use one. "auto" is
        the smallest of `models`.
      precision: The precision of the model's products. "tf32" rounds their factors
        where the device can. "bfloat16" rounds everything but parameters and losses.
      initial: The run folder whose last server's model is the first one here, or a file
        of `pfljax export`. None draws the first model.
      loss: The loss of an example, such as "cross_entropy:smoothing=0.1" or "huber".
        "auto" is the usual one of the task.
      freeze: The leaves of the model that keep their first values, by pattern, such as
        "body/*" or "head/bias".

    Data:
      dataset: The data set, or files: csv, parquet, npz, images, huggingface, hdf5,
        leaf or pfllib, such as "csv:path=study.csv". See `pfljax list datasets`.
      task: What the targets are: classes, several labels, real numbers, tokens, or
        ratings. "auto" is what the data set has.
      partition: How the examples are divided over the clients, such as
        "dirichlet:alpha=0.5". See `pfljax list partitions`.
      clients: The number of clients. None takes the natural clients of the data set.
      test: The share of each client's examples held out for testing, if it has no
        official test examples.
      validation: The share of each client's examples held out for validation, if the
        data set has no official validation examples.
      stratified: Split each client's examples class by class.
      test_from: Test on each client's own examples ("clients"; natural clients on their
        official test examples), on the "official" test set, or on its examples of the
        client's classes ("official_classes").
      examples: Divide the official "train" examples, or "all" of them.
      noise: Wrong training labels, such as "pair:rate=0.1" or "symmetric:rate=0.2".
        "poison:attackers=0.2" gives them to malicious clients only.
      unseen: The share of clients held out of training and evaluated as newcomers. Or
        their names, such as "anna,ben", or a group of them, such as "domain=photo".
      public: The share of examples that the server holds, for methods that use them.
      data_seed: The seed of the partition. None is `seed`; a number gives all seeds the
        same clients.

    Training:
      epochs: Local passes over a client's examples in a round. 0.5 is half a pass. None
        if `steps` is given.
      steps: Local steps in a round, instead of `epochs`.
      batch_size: Examples in a local step. The last batch of an epoch may be smaller.
      lr: The local learning rate.
      lr_decay: Round r = 1, 2, ... uses the learning rate lr * lr_decay**r. Rates that
        are options of a method, such as posterior_lr, do not decay.
      schedule: An optax schedule that multiplies lr by round, or by local step within
        a round, such as "cosine:decay_steps=100" or
        "warmup_cosine:warmup_steps=5,decay_steps=50,by=step". See `pfljax list
        schedules`.
      momentum: The momentum of "sgd", in torch's convention. It restarts in each round,
        unless `keep_optimizer` is set.
      weight_decay: The weight decay of "sgd", which is added to the gradient.
      augment: Random changes of images in training, such as "crop:pad=4 flip". See
        `pfljax list augmentations`.
      max_grad_norm: The largest norm of the gradient of a local step; longer gradients
        are scaled down before the optimizer. None clips none.
      optimizer: "sgd", or an optax optimizer, such as "adam:b1=0.9". See `pfljax list
        optimizers`.
      keep_optimizer: Clients keep the state of their optimizer, such as momentum, from
        round to round. It is not sent.

    Participation:
      rounds: The number of communication rounds.
      cohort: The number of clients in a round.
      selection: How clients are selected: "uniform", "by_size" with replacement, or for
        example "tifl:tiers=4". See `pfljax list selections`.
      stragglers: The share of each cohort that does only part of its work.
      drop_stragglers: Drop the work of stragglers, as FedAvg does.
      profile: The devices of the clients, such as "speed_groups" or
        "lognormal:sigma=1". Rounds then take virtual seconds. See `pfljax list
        profiles`.
      deadline: The virtual seconds that a round may take. Slower clients do not report.
      mode: "sync", or asynchronous rounds, in which `cohort` clients train at any time:
        "fedasync:staleness=polynomial" or "fedbuff:buffer=10". See `pfljax list modes`.
      channel: Attacks on uploads, clipping, compression and loss, applied in this
        order, such as "sign_flip:attackers=0.2", "clip:norm=1.0", "top_k:share=0.01" or
        "lost:share=0.1". See `pfljax list channels`.
      aggregation: A robust aggregate instead of the mean of the uploads, such as
        "median" or "krum:byzantine=2". See `pfljax list aggregations`.
      server_optimizer: An optimizer that moves the server's model towards the
        aggregate, such as "fedadam:learning_rate=0.01" or "sgd:learning_rate=1.0".
        With "none" the aggregate is the new model. See `pfljax list server_optimizers`.

    Evaluation:
      eval_every: The number of rounds between two evaluations.
      metrics: Further metrics, such as "auc macro_f1". See `pfljax list metrics`.
      patience: Stop after this many evaluations in which `monitor`, the mean over
        clients on validation examples, did not improve. None runs all rounds.
      monitor: The metric for `patience` and the one that reports lead with, such as
        loss. "auto" is that of the task: accuracy, micro_f1 or rmse.
      eval_after_training: Also evaluate clients after their own local training, before
        averaging.
      ood_examples: The number of examples, from all clients, on which to evaluate the
        detection of classes that a client does not hold (AUROC of the entropy of its
        predictions). 0 skips it.
      dissimilarity: Record the dissimilarity B and the variance of the clients'
        gradients at the server's model, and its loss on all training examples.

    Machine:
      width: The number of clients that train at once on a device. None is the default
        of the platform.
      devices: The number of devices that share the cohort. None takes as many as
        the cohort can use.
      pin_clients: Keep each client's examples and state on one device, which trains it.
        Otherwise the cohort is divided anew in each round.
      state_storage: Keep client states on the "device", in "host" memory or on "disk".

    Output:
      out: The run folder. None is runs/DATASET-ALGORITHM-sSEED, followed by the
        settings that are not at their defaults.
      label: The name in tables and figures.
      log: Formats of the log beside metrics.jsonl: csv, tensorboard, wandb or several,
        such as "csv,wandb:project=mine".
      keep_checkpoints: The number of checkpoints to keep.
      seed: The seed of the parameters, the cohorts and the minibatches, and of the
        partition unless `data_seed` is given.
    """

    algorithm: Component = setting(default="fedavg", converter=convert)
    model: Component = setting(default="auto", converter=convert)
    models: tuple[Component, ...] = setting(default=(), converter=convert_all)
    proxy: Component = setting(default="auto", converter=convert)
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    initial: Text | None = None
    loss: Component = setting(default="auto", converter=convert)
    freeze: tuple[str, ...] = setting(default=(), converter=_split_words)

    dataset: Component = setting(default="digits", converter=convert)
    task: Literal[
        "auto", "classes", "multilabel", "regression", "tokens", "ratings"
    ] = "auto"
    partition: Component = setting(default="shards:per_client=2", converter=convert)
    clients: AtLeastOne | None = 20
    test: Part = 0.2
    validation: Part = 0.1
    stratified: bool = False
    test_from: Literal["clients", "official", "official_classes"] = "clients"
    examples: Literal["train", "all"] = "train"
    noise: Component = setting(default="none", converter=convert)
    unseen: Part | Text = 0.0
    public: Part = 0.0
    data_seed: Count | None = None

    epochs: Epochs | None = 5
    steps: AtLeastOne | None = None
    batch_size: AtLeastOne = 10
    lr: Positive = 0.05
    lr_decay: Positive = 1.0
    schedule: Component = setting(default="constant", converter=convert)
    momentum: BelowOne = 0.0
    weight_decay: NotNegative = 0.0
    augment: tuple[Component, ...] = setting(default=(), converter=convert_all)
    max_grad_norm: Positive | None = None
    optimizer: Component = setting(default="sgd", converter=convert)
    keep_optimizer: bool = False

    rounds: AtLeastOne = 100
    cohort: AtLeastOne = 5
    selection: Component = setting(default="uniform", converter=convert)
    stragglers: Share = 0.0
    drop_stragglers: bool = False
    profile: Component = setting(default="none", converter=convert)
    deadline: Positive | None = None
    mode: Component = setting(default="sync", converter=convert)
    channel: tuple[Component, ...] = setting(default=(), converter=convert_all)
    aggregation: tuple[Component, ...] = setting(default=(), converter=convert_all)
    server_optimizer: Component = setting(default="none", converter=convert)

    eval_every: AtLeastOne = 10
    metrics: tuple[Component, ...] = setting(default=(), converter=convert_all)
    patience: AtLeastOne | None = None
    monitor: Text = "auto"
    eval_after_training: bool = False
    ood_examples: Count = 0
    dissimilarity: bool = False

    width: AtLeastOne | None = None
    devices: AtLeastOne | None = None
    pin_clients: bool = False
    state_storage: Literal["device", "host", "disk"] = "device"

    out: Text | None = None
    label: Text | None = None
    log: tuple[Component, ...] = setting(default=(), converter=convert_all)
    keep_checkpoints: AtLeastOne = 2
    seed: Count = 0

    def __post_init__(self) -> None:
        for name, field in FIELDS.items():  # a frozen dataclass has no other way
            object.__setattr__(self, name, _convert(field, getattr(self, name)))

    replace = dataclasses.replace

    @property
    def folder(self) -> str:
        """The run folder: `out`, or a name made of the settings (`runs/names.py`)."""
        data, method = self.dataset.short_name, self.algorithm.short_name
        plain = f"runs/{data}-{method}-s{self.seed}"
        return self.out or names.special(plain, changed_settings(self))


FIELDS = {field.name: field for field in dataclasses.fields(Experiment)}
# These change no number of the rounds that are done.
UNHASHED = (
    "out", "label", "devices", "pin_clients", "keep_checkpoints",
    "state_storage", "log", "patience", "monitor",
)  # fmt: skip
HELP = docstrings.sections(Experiment.__doc__)  # heading -> setting -> text
# With the seed they say which client holds which examples.
DATA_SETTINGS = tuple(HELP["Data"])


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


def changed_settings(experiment: Experiment) -> dict[str, Any]:
    """The settings and options of the method that differ from the defaults.

    Without the data set's and method's names, the seed, and what changes no result.
    """
    default = Experiment(dataset=experiment.dataset.name)
    different = _changed_options(experiment.algorithm)
    for name, value in vars(experiment).items():
        is_named = name in ("algorithm", "seed")
        if not is_named and name not in UNHASHED and value != getattr(default, name):
            different[name] = value
    return different


def label(experiment: Experiment) -> str:
    """The name in tables: `label`, or the method with its changed options."""
    if experiment.label:
        return experiment.label
    options = _changed_options(experiment.algorithm)
    if experiment.server_optimizer.name != "none":
        options["server_optimizer"] = experiment.server_optimizer
    words = [f"{name}={value}" for name, value in options.items()]
    method = experiment.algorithm.short_name
    return " ".join([method, *map(names.without_files, words)])


def _changed_options(method: Component) -> dict[str, Any]:
    """The options of a method that are not at their defaults."""
    from pfljax import algorithms  # imported here: readers of settings need no JAX

    defaults = factories.defaults(algorithms.method(method.name))
    return {
        name: value
        for name, value in method.args
        if name not in defaults or defaults[name] != value
    }
