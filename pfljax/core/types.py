"""The core types: methods, their inputs, and the state of a run. Read this first.

A method is an `Algorithm`: pure functions written for one client. The engine owns the
client axis, the round axis, keys, gather and scatter. Axis letters: C clients, M
cohort, N examples of the pool, B batch, K classes.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from pfljax.core import factories
from pfljax.core.kinds import cross_entropy
from pfljax.core.precision import EXACT
from pfljax.core.ranges import AtLeastOne, Epochs, NotNegative, Steps

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array  # a typed PRNG key, jax.random.key
Params: TypeAlias = Any  # pytree of arrays, as a model's init returns them
# Real numbers of one client's local training; the log has their means as "train_NAME".
# "loss" is the data loss of the stepped model; a penalty is separate, so that curves of
# methods are comparable.
Metrics: TypeAlias = dict[str, Array]
# Any pytrees of a method; their structure never changes in a run.
Server: TypeAlias = Any
Client: TypeAlias = Any
Message: TypeAlias = Any
Upload: TypeAlias = Any
Origin: TypeAlias = Any  # shaped like an upload, None at leaves that are no change
Personal: TypeAlias = Any


class Examples(NamedTuple):
    """The pool of all examples: one copy for all clients, in its storage type."""

    x: Array  # [N, ...], uint8 pixels stay uint8
    y: Array  # i32[N], or the target of another kind of task (`core.kinds`)


class Batch(NamedTuple):
    """A minibatch; padding has mask 0 and the values of a real example."""

    x: Array  # [B, ...]
    y: Array  # i32[B], or that of another kind
    mask: Array  # f32[B], 1 for an example that counts

    @classmethod
    def full(cls, x: Any, y: Any = None) -> "Batch":
        """Raw examples x [B, ...], which all count; without y their labels are 0."""
        labels = jnp.zeros(len(x), jnp.int32) if y is None else y
        return cls(x, labels, jnp.ones(len(x)))


class ClientData(NamedTuple):
    """Client k owns the examples offset_k .. offset_k + size_k of the pool."""

    examples: Examples
    offset: Array  # i32[], or i32[C] when stacked over clients
    size: Array  # i32[], or i32[C]


def same(params: Params) -> Params:
    """The parameters as they are."""
    return params


class Task(NamedTuple):
    """The model, as a method sees it.

    With a key the model is in training mode (dropout is on), with None in evaluation
    mode. `Batch.full` makes a batch of raw examples.
    """

    init: Callable[[Key], Params]
    loss: Callable[[Params, Batch, Key | None], Array]  # mean over what counts
    logits: Callable[[Params, Batch, Key | None], Array]  # [B, K]
    features: Callable[[Params, Batch, Key | None], Array]  # input of the head [B, ...]
    predict: Callable[[Params, Batch], Array]  # logits in evaluation mode
    # (params, features) -> logits in evaluation mode; (params, features, mask, key) ->
    # those of `logits`, so that with `features` one forward pass gives both.
    head: Callable[..., Array]
    groups: Params  # "body" or "head" at every leaf of the parameters
    modules: Params  # index of the module, int, at every leaf: 0 .. num_modules - 1
    num_modules: int
    num_classes: int  # K, the width of the outputs
    kind: str = "classes"  # of the target and the outputs: a name in `core.kinds`
    # (outputs, y) -> the loss of each example, f32[B]; `loss` is its mean.
    example_losses: Callable[[Array, Array], Array] = cross_entropy
    # Examples are tokens 0 .. vocab - 1, which are never scaled; None if x is real. The
    # columns of x may have a number each, such as users and items.
    vocab: int | tuple[int, ...] | None = None
    precision: str = EXACT  # of logits and features: a name in `core.precision`
    # The task of a small model that is the same for all clients, if their own models
    # have several architectures; None if this model is the same for all.
    proxy: "Task | None" = None
    # The first model of the server, with None at leaves that are drawn; None draws all.
    initial: Params | None = None
    # Shape of the features of one example, such as (512,); () if it is not known.
    feature_shape: tuple[int, ...] = ()
    # The tasks of all architectures of the federation, and the number of this one among
    # them; () if there is one. A method whose server has a model of each needs them.
    peers: tuple["Task", ...] = ()
    number: int = 0
    # The units of each layer, the logits last: a list of `core.units.Units`. It raises
    # a ValueError at a layer of an unknown kind. None if the task does not know them.
    units: Callable[[], list[Any]] | None = None
    # The task of this model with other numbers of units in the layers at these paths.
    resized: Callable[[dict[tuple[str, ...], int]], "Task"] | None = None
    # True at every leaf that a run keeps at its first value (`core.frozen`), if any.
    frozen: Params | None = None
    # The task of the same model without adapters (`models.adapters`), if it has any.
    wrapped: "Task | None" = None
    # The model as it is exported: with frozen leaves, and adapters added to kernels.
    complete: Callable[[Params], Params] = same


@dataclasses.dataclass(frozen=True)
class Local:
    """How a client trains. Numbers may be traced.

    Raises:
      ValueError: a number is out of its range, or both epochs and steps are given.
    """

    learning_rate: NotNegative | Callable[..., Any]  # may be a function of the round
    batch_size: AtLeastOne  # the last batch of an epoch may be short
    epochs: Epochs = 1  # passes over the client's examples, 0.5 for half; None for ...
    steps: Steps = None  # ... a number of steps
    optimizer: Callable[[Any], optax.GradientTransformation] = optax.sgd
    # A factor of the rate as a function of the local step, which counts from 0.
    by_step: Callable[..., Any] | None = None
    # Its first state as a function of a fresh one, if clients keep it between rounds.
    start: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        factories.check_values("Local", Local, vars(self))
        if self.epochs is not None and self.steps is not None:
            raise ValueError(
                f"Local: epochs is {self.epochs} and steps is {self.steps}; give one "
                "of them, and None for the other"
            )

    def _replace(self, **changes: Any) -> "Local":
        """A checked copy with some fields changed, like that of a NamedTuple."""
        return dataclasses.replace(self, **changes)


class Turn(NamedTuple):
    """One client's part in a round."""

    key: Key  # from the seed, the round and the client id, never from a position
    round: Array  # i32[], 0 for the first
    steps: Array  # i32[], the client's budget of local steps
    id: Array  # i32[], the client's number
    num_clients: int  # C
    public: ClientData  # the examples at the server; size 0 if there are none


class Cohort(NamedTuple):
    """The participants of a round, for `aggregate`."""

    ids: Array  # i32[M]
    weight: Array  # f32[M], examples of each client, or its draws (selection.by_size)
    mask: Array  # f32[M], 0 for a client that did not report, or is listed again
    draws: Array  # f32[M], times drawn: 1 except in selection.by_size
    num_clients: int  # C
    round: Array  # i32[], 0 for the first
    key: Key  # the server's key of this round
    public: ClientData  # the examples at the server; size 0 if there are none
    # For uploads by architecture: the positions in the cohort of the members of each
    # stack, by the architecture's number, i32[M_g]; past the end for an empty slot.
    places: Any = ()


def message_origin(message: Message, client: Client, upload: Upload) -> Origin:
    """The message: the origin of an upload that is the message after training."""
    return message


def zero_origin(message: Message, client: Client, upload: Upload) -> Origin:
    """Zeros: the origin of an upload that is a change, or that is made anew."""
    return jax.tree.map(jnp.zeros_like, upload)


def local_steps(steps: Array, size: Array, is_first: Array) -> Array:
    """The local steps: the work of a method that trains one model by one gradient."""
    return steps


class Algorithm(NamedTuple):
    """A federated learning method: functions of one client, except for `aggregate`.

    A client is evaluated with `personal`, or with `server_model` if that is None; a
    client that never took part, with `newcomer` if the method has it.
    """

    init: Callable[[Params, int, Key], Server]  # (params, num_clients, key)
    init_client: Callable[[Params, Array, Key], Client]  # (params, id, key)
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
    # Further numbers of each client in an evaluation, f32[] by name.
    quantities: Callable[[Server, Client], dict[str, Array]] | None = None
    adaptation_steps: int = 0  # local steps that `personal` takes before an evaluation
    # Kinds of leaves, a name in `core.leaves`: a run refuses a model without them.
    parts: tuple[str, ...] = ()
    classes: bool = False  # a run refuses a kind of task without classes
    linear: bool = False  # a run refuses a model that is not linear in its parameters
    # The server treats each client's upload separately: a run refuses a channel that
    # replaces all uploads by one value.
    uploads_by_client: bool = False
    # The start of an upload, for channels, which act on the change from there: what a
    # client sends that takes no step. Zeros if the upload is a difference, and None at
    # leaves that are indices or counts. The client's state is that before training.
    origin: Callable[[Message, Client, Upload], Origin] = message_origin
    # The number of the client's architecture (`Task.number`) if uploads depend on it:
    # then `aggregate` takes a dict of stacks by number, one for each architecture with
    # uploads, and `aggregation.senders` has the cohort of each. Otherwise None.
    architecture: int | None = None
    # The work of `train`, in gradients of the client's model on a minibatch: a function
    # of the local steps, the training examples, and whether it is the client's first
    # round. The virtual clock and the FLOPs of a step follow it. A small model counts
    # by its share of the parameters, and a pass without gradients counts nothing.
    work: Callable[[Array, Array, Array], Array] = local_steps
    # The next exchange of the same cohort in the same round: its `message`, `train` and
    # `aggregate` follow those here, on the states that these return. Of two metrics of
    # the same name, the log has the later one.
    then: "Algorithm | None" = None


class RunState(NamedTuple):
    """All that changes in a run: this pytree is the whole checkpoint."""

    key: Key  # the run's key; it is constant, and others are derived by fold_in
    round: Array  # i32[], rounds finished
    server: Server
    clients: Client  # stacked over C
    participations: Array  # i32[C], rounds in which a client reported
    cohort: Array  # i32[M], the clients selected in the last round; C for an empty slot
    selection: Any  # the state of the selection (pfljax.selection)
    channel: Any  # the state of the channel (pfljax.channel)
    # Uploads under way in asynchronous rounds (pfljax.engine.modes); otherwise ().
    pending: Any = ()
