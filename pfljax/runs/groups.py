"""The groups of an experiment's settings: a record for what they speak of.

Each field is a setting, with its type, its default, and its text in `--help`.
"""

import dataclasses
from typing import Any

from pfljax import registry
from pfljax.core.precision import EXACT
from pfljax.registry import Choice

# These change no number of the rounds that are done.
UNHASHED = (
    *("out", "label", "baseline", "devices", "homes", "keep", "store"),
    *("log", "patience", "watch"),
)


def setting(default: Any, text: str) -> Any:
    """A field with its help text."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Method:
    """The method: what clients train and send, and what the server makes of it."""

    algorithm: str = setting(
        "fedavg",
        'The method, with its options: "ditto:lam=1.0"; `pfljax list algorithms`.',
    )
    hyper: tuple[tuple[str, Any], ...] = setting(
        (), 'The method\'s options, such as {"mu": 0.01}.'
    )
    model: Choice = setting(
        Choice("auto"),
        'The model; `pfljax list models` names them. "auto" goes by the shape of x.',
    )
    models: tuple[Choice, ...] = setting(
        (),
        "Models of clients of several architectures, instead of `model`: client i has "
        'number i mod the length of the list. Also a group of them, "htcnn_yi".',
    )
    proxy: Choice = setting(
        Choice("auto"),
        "The small model that all clients have alike, for methods that use one; "
        '"auto" is the smallest of `models`.',
    )
    precision: str = setting(
        EXACT,
        'The model computes in "float32"; "tf32" rounds factors of products, where '
        'the device can; "bfloat16" all but parameters and losses.',
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """Which rows there are, and which client has them for what."""

    dataset: Choice = setting(
        Choice("digits"), "The data set; `pfljax list datasets` names them."
    )
    partition: Choice = setting(
        registry.choose("shards", per_client=2),
        "How rows are dealt to clients; `pfljax list partitions` names the ways. The "
        'Dirichlet of PFLlib and NIID-Bench is "dirichlet_over_clients:alpha=0.5", '
        'a class divided over clients (PFLlib\'s very draws: "pfllib_dirichlet"); '
        "that of Hsu et al., a mixture of classes a client, is "
        '"dirichlet_over_classes_by_client".',
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
        'Wrong training labels: "pair:rate=0.1", "symmetric:rate=0.2"; '
        '"poison:attackers=0.2" of malicious clients alone.',
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

    epochs: int | float | None = setting(
        5,
        "Local passes over a client's rows a round, 0.5 for half of the steps of one; "
        "None if `steps` is given.",
    )
    steps: int | None = setting(None, "Local steps a round, instead of `epochs`.")
    batch_size: int = setting(
        10, "Rows of a local step; the last batch of an epoch may be short."
    )
    lr: float = setting(0.05, "Local learning rate.")
    lr_decay: float = setting(1.0, "Round r = 1, 2, ... trains at lr * lr_decay**r.")
    schedule: Choice = setting(
        Choice("constant"),
        "Multiples of lr by round, or by a round's local step: an optax schedule, "
        '"cosine:decay_steps=100", "warmup_cosine:warmup_steps=5,decay_steps=50,'
        'by=step"; `pfljax list schedules`.',
    )
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
        'Who takes part: "uniform", "by_size" with replacement, "tifl:tiers=4"; '
        "`pfljax list selections` names all.",
    )
    stragglers: float = setting(
        0.0, "Share of each cohort that does only part of its work."
    )
    drop_stragglers: bool = setting(
        False, "Throw the work of stragglers away, as FedAvg does."
    )
    profile: Choice = setting(
        Choice("none"),
        "The devices of the clients, by which rounds take virtual seconds: "
        '"speed_groups", "lognormal:sigma=1"; `pfljax list profiles` names them.',
    )
    deadline: float | None = setting(
        None,
        "Virtual seconds that a round may take; who takes longer does not report.",
    )
    mode: Choice = setting(
        Choice("sync"),
        'Rounds are "sync", or asynchronous: "fedasync:staleness=polynomial", '
        '"fedbuff:buffer=10", where `cohort` clients train at any time; '
        "`pfljax list modes`.",
    )
    channel: tuple[Choice, ...] = setting(
        (),
        'What happens to uploads on their way: "clip:norm=1.0", "top_k:share=0.01", '
        '"lost:share=0.1", "sign_flip:attackers=0.2"; `pfljax list channels` names '
        "them. They act as attack, clip, compress, lose, however they stand.",
    )
    aggregation: tuple[Choice, ...] = setting(
        (),
        'What the server takes in the place of the uploads: "median", '
        '"krum:byzantine=2"; `pfljax list aggregations` names them. None: the uploads, '
        "of which a method makes a mean or what it does.",
    )
    server_optimizer: Choice = setting(
        Choice("none"),
        "What steps the server's model along the aggregate, w minus which is its "
        'gradient: "fedavgm", "fedadam:learning_rate=0.01", "fedyogi", "fedadagrad", '
        'or one of optax, "sgd:learning_rate=1.0". None: the aggregate is the model.',
    )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """When clients are judged, and against what."""

    eval_every: int = setting(10, "Rounds between two evaluations.")
    patience: int | None = setting(
        None,
        "Evaluations without a better mean over clients, on validation rows, of what "
        "`watch` names, after which the run ends; None: it has all its rounds.",
    )
    watch: str = setting(
        "accuracy",
        "What `patience` goes by: accuracy or top5, or loss or brier, of which less is "
        "better.",
    )
    trained: bool = setting(
        False, "Judge clients also after their own local training, before averaging."
    )
    foreign: int = setting(
        0,
        "Rows of all clients, in which to detect classes that a client does not hold "
        "by the entropy of its predictions (AUROC); 0 leaves it out.",
    )
    dissimilarity: bool = setting(
        False,
        "Record at every evaluation how far clients' gradients at the server's model "
        "are apart (B, and their variance), and its loss over all training rows.",
    )
    smoothness: float | None = setting(
        None,
        "L, of which all clients' losses are smooth: dissimilarity then has rho too, "
        "by which FedProx's theorem expects the loss to fall.",
    )
    concavity: float = setting(
        0.0, "L_- of rho: no Hessian of a client's loss is below minus this; 0: convex."
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

    out: str | None = setting(
        None,
        "Run folder; None is runs/DATASET-ALGORITHM-sSEED, and behind it what differs "
        "from the defaults.",
    )
    label: str | None = setting(None, "Name in tables and figures.")
    log: tuple[Choice, ...] = setting(
        (),
        "Where the log goes beside metrics.jsonl: csv, tensorboard, wandb, or several: "
        '"csv,wandb:project=mine".',
    )
    keep: int = setting(2, "Checkpoints to keep.")
