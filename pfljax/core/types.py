"""The core types: what a method is, what it is told, and what changes. Read this first.

A method is an `Algorithm`: pure functions written for one client. The engine owns the
client axis, the round axis, keys, gather and scatter. Axis letters: C clients, M
cohort, N rows of the pool, B batch.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from pfljax import registry
from pfljax.core.precision import EXACT
from pfljax.registry import AtLeastOne, Epochs, NotNegative, Steps

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array  # a typed PRNG key, jax.random.key
Params: TypeAlias = Any  # pytree of arrays, as a model's init returns them
# Scalars of one client's local training. "loss" is the data loss of what is stepped;
# a penalty is apart, so that the curves of methods compare.
Metrics: TypeAlias = dict[str, Array]
# Whatever pytrees a method likes; their structure never changes in a run.
Server: TypeAlias = Any
Client: TypeAlias = Any
Message: TypeAlias = Any
Upload: TypeAlias = Any
Origin: TypeAlias = Any  # shaped as an upload, None at leaves that are no change
Personal: TypeAlias = Any


class Examples(NamedTuple):
    """The pool of all rows: one copy for all clients, in its storage type."""

    x: Array  # [N, ...], uint8 pixels stay uint8
    y: Array  # i32[N]


class Batch(NamedTuple):
    """A minibatch; padded rows have mask 0 and hold a real row's values."""

    x: Array  # [B, ...]
    y: Array  # i32[B]
    mask: Array  # f32[B], 1 for a row that counts

    @classmethod
    def full(cls, x: Any, y: Any = None) -> "Batch":
        """Raw rows x [B, ...], which all count; without y their labels are 0."""
        labels = jnp.zeros(len(x), jnp.int32) if y is None else y
        return cls(x, labels, jnp.ones(len(x)))


class ClientData(NamedTuple):
    """Client k owns rows offset_k .. offset_k + size_k of the pool."""

    examples: Examples
    offset: Array  # i32[], or i32[C] when stacked over clients
    size: Array  # i32[], or i32[C]


class Task(NamedTuple):
    """All that a method knows of the model.

    With a key the model is in training mode (dropout is on), with None in evaluation
    mode. `Batch.full` makes a batch of raw rows.
    """

    init: Callable[[Key], Params]
    loss: Callable[[Params, Batch, Key | None], Array]  # mean over the rows that count
    logits: Callable[[Params, Batch, Key | None], Array]  # [B, K]
    features: Callable[[Params, Batch, Key | None], Array]  # input of the head [B, ...]
    predict: Callable[[Params, Batch], Array]  # logits in evaluation mode
    # (params, features) -> logits in evaluation mode; (params, features, mask, key) as
    # `logits` has them: with those of `features` one forward pass makes both.
    head: Callable[..., Array]
    groups: Params  # "body" or "head" at every leaf of the parameters
    modules: Params  # index of the module, int, at every leaf: 0 .. num_modules - 1
    num_modules: int
    num_classes: int  # K
    precision: str = EXACT  # of logits and features: a name in `core.precision`
    # The task of the small model that all clients have alike, beside models of several
    # architectures; None where this one is alike for all.
    proxy: "Task | None" = None
    # Of the features of one row, such as (512,); () where the task does not say.
    feature_shape: tuple[int, ...] = ()
    # The tasks of all architectures of the federation, and which of them this one is;
    # () where there is one. A method whose server has a model of each needs them.
    peers: tuple["Task", ...] = ()
    number: int = 0
    # The units of each layer, the logits last: a list of `core.units.Units`. It raises
    # a ValueError at a layer that is of no known kind. None where the task cannot say.
    units: Callable[[], list[Any]] | None = None
    # The task of this model whose layers at these paths have other numbers of units.
    resized: Callable[[dict[tuple[str, ...], int]], "Task"] | None = None


@dataclasses.dataclass(frozen=True)
class Local:
    """How a client trains. Numbers may be traced.

    Raises:
      ValueError: a number is out of its range, or epochs and steps are both given.
    """

    learning_rate: NotNegative | Callable[..., Any]  # may be a function of the round
    batch_size: AtLeastOne  # rows a step; the last batch of an epoch may be short
    epochs: Epochs = 1  # passes over the client's rows, 0.5 for half; None for ...
    steps: Steps = None  # ... a number of steps
    optimizer: Callable[[Any], optax.GradientTransformation] = optax.sgd
    # A multiple of the rate as a function of the local step, 0 for a round's first.
    by_step: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        registry.check_values("Local", Local, vars(self))
        if self.epochs is not None and self.steps is not None:
            raise ValueError(
                f"Local: epochs is {self.epochs} and steps is {self.steps}; give one "
                "of them, and None for the other"
            )

    def _replace(self, **changes: Any) -> "Local":
        """A copy with some fields changed, checked; as of the NamedTuples here."""
        return dataclasses.replace(self, **changes)


class Turn(NamedTuple):
    """What a client is told of this round."""

    key: Key  # from seed, round and client id: never from a position
    round: Array  # i32[], 0 for the first
    steps: Array  # i32[], this client's budget of local steps
    id: Array  # i32[], this client's number
    num_clients: int  # C
    public: ClientData  # the rows that the server holds; size 0 where there are none


class Cohort(NamedTuple):
    """What `aggregate` may know of who took part, and of the round."""

    ids: Array  # i32[M]
    weight: Array  # f32[M], rows of each client, or its draws (selection.by_size)
    mask: Array  # f32[M], 0 for who did not report, or stands here a second time
    draws: Array  # f32[M], times drawn: 1, but for selection.by_size
    num_clients: int  # C
    round: Array  # i32[], 0 for the first
    key: Key  # the server's own of this round
    public: ClientData  # the rows that the server holds; size 0 where there are none
    # Of uploads by architecture: the place in the cohort of each of a stack, by the
    # architecture's number, i32[M_g]; past the end for a slot that nobody fills.
    places: Any = ()


def message_origin(message: Message, client: Client, upload: Upload) -> Origin:
    """The message: the origin of an upload that is the message, trained."""
    return message


def zero_origin(message: Message, client: Client, upload: Upload) -> Origin:
    """Zeros: the origin of an upload that is a change, or that is made anew."""
    return jax.tree.map(jnp.zeros_like, upload)


class Algorithm(NamedTuple):
    """A federated learning method: functions of one client, but for `aggregate`.

    Who is judged by what: a client by `personal`, or by `server_model` where that is
    None; a client that never took part by `newcomer` where the method has one.
    """

    init: Callable[[Params, int, Key], Server]  # (params, num_clients, key)
    init_client: Callable[[Params, Array, Key], Client]  # (params, id, key); unseen too
    message: Callable[[Turn, Server, Client], Message]  # its leaves are the bytes down
    train: Callable[  # (turn, message, client, data); the upload is the bytes up
        [Turn, Message, Client, ClientData], tuple[Client, Upload, Metrics]
    ]
    aggregate: Callable[[Server, Upload, Cohort], Server]  # uploads stacked over M
    predict: Callable[[Personal, Batch], Array]  # logits [B, K] in evaluation mode
    server_model: Callable[[Server], Params] | None = None  # the one model of all
    personal: Callable[[Turn, Server, Client, ClientData], Personal] | None = None
    newcomer: Callable[[Turn, Server, ClientData], Personal] | None = None
    endpoints: Callable[[Server, Client], tuple[Params, Params]] | None = None
    # What an evaluation keeps of each client beside its metrics, f32[] by name.
    quantities: Callable[[Server, Client], dict[str, Array]] | None = None
    adaptation_steps: int = 0  # local steps that `personal` takes before an evaluation
    parts: tuple[str, ...] = ()  # of `Task.groups`: a run refuses a model without them
    linear: bool = False  # a run refuses a model that is not linear in its parameters
    # The server keeps or weighs each client's upload: a run refuses a channel that puts
    # one value in the place of all.
    uploads_by_client: bool = False
    # What an upload is a change of, for channels: what a client sends that takes no
    # step. Zeros where the upload is a difference; None at leaves that say for whom it
    # is, or count. The client's state is that before training.
    origin: Callable[[Message, Client, Upload], Origin] = message_origin
    # The number of the client's architecture (`Task.number`), if uploads differ by it:
    # `aggregate` takes a dict of stacks by number then, one of each architecture that
    # sent, and `aggregation.senders` has the cohort of each. None where all are alike.
    architecture: int | None = None
    # What the same cohort does next in the same round: its `message`, `train` and
    # `aggregate` follow those here, on the states as these left them.
    then: "Algorithm | None" = None


class RunState(NamedTuple):
    """All that changes in a run: this pytree is the checkpoint, whole."""

    key: Key  # the run's key; constant, derived from by fold_in
    round: Array  # i32[], rounds finished
    server: Server
    clients: Client  # stacked over C
    participations: Array  # i32[C], rounds in which a client reported
    cohort: Array  # i32[M], who was asked in the last round; C for nobody
    selection: Any  # what the selection learned (pfljax.selection)
    channel: Any  # what the channel remembers (pfljax.channel)
    # Uploads under way, of asynchronous rounds (pfljax.engine.modes); () of others.
    pending: Any = ()
