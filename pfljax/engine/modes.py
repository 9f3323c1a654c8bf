"""Asynchronous modes: how the server merges uploads as they arrive.

FedAsync. Xie, Koyejo, Gupta, 2019, https://arxiv.org/abs/1903.03934. One at a time:
    w <- (1 - alpha s(tau)) w + alpha s(tau) w_k
The proximal term of its clients belongs to the method: choose fedprox for it.
FedBuff. Nguyen et al., AISTATS 2022, https://arxiv.org/abs/2106.06639. K at a time:
    w <- w + lr * the mean of  s(tau) (w_k - the model that k read)

The staleness tau counts versions of the server between the one that a client read and
the one that its upload meets; s(0) = 1.

    constant    s = 1
    polynomial  s = (1 + tau) ** -a                        a = 0.5
    hinge       s = 1 up to b, then 1 / (1 + a (tau - b))  a = 10, b = 6

The mean of FedBuff has the weights of the method's own, such as numbers of examples, so
that without staleness a buffer of the whole cohort is FedAvg. In its paper all clients
have the same weight.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.components import Component
from pfljax.core.factories import build, component
from pfljax.core.ranges import AtLeastOne, NotNegative, Positive, PositiveShare
from pfljax.core.types import Algorithm, Array, Cohort

Staleness = Literal["constant", "polynomial", "hinge"]
BUFFER = 10  # as in the paper, for cohorts of at least this size


class Pending(NamedTuple):
    """Results of clients that the server has not merged yet, stacked over the slots."""

    client: Any  # their new states
    upload: Any
    origin: Any  # of which the upload is a change; () if the mode does not need it
    metrics: Any


class Mode(NamedTuple):
    """An asynchronous mode of rounds. A round has `versions` of `buffer` uploads."""

    buffer: int  # K, the uploads that make a version of the server
    versions: int  # of a round
    # (server, arrived, staleness i32[K]) -> uploads [K], moved to the current server
    move: Callable[[Any, Pending, Array], Any]
    # (algorithm, server, uploads [K] as received, cohort, staleness i32[K]) -> server
    merge: Callable[[Algorithm, Any, Any, Cohort, Array], Any]
    keeps_origin: bool
    like: Pending | None = None  # one slot, as shapes

    def slots(self, cohort: int, num_clients: int) -> int:
        """The most uploads that are in flight or wait in the buffer."""
        return min(num_clients, cohort + self.buffer - 1)


def decay(staleness: Staleness, a: float | None, b: float) -> Callable[[Array], Array]:
    """s of the staleness i32[K], f32[K]."""
    if staleness == "constant":
        return lambda tau: jnp.ones(tau.shape, jnp.float32)
    if staleness == "polynomial":
        power = 0.5 if a is None else a
        return lambda tau: (1.0 + tau) ** -power
    slope = 10.0 if a is None else a
    return lambda tau: 1 / (1 + slope * jnp.maximum(tau - b, 0))


@component
def sync(cohort: int) -> None:
    """Synchronous rounds: the server waits for the whole cohort."""
    return None


@component
def fedasync(
    cohort: AtLeastOne,
    *,
    alpha: PositiveShare = 0.6,
    staleness: Staleness = "polynomial",
    a: NotNegative | None = None,
    b: NotNegative = 6.0,
) -> Mode:
    """Updates the model after each upload; a round has `cohort` (Xie et al., 2019).

    `alpha` = 1 with constant staleness replaces the model.

    Args:
      alpha: share of a fresh upload in the server's model.
      staleness: how that falls: "constant", "polynomial" or "hinge".
      a: slope of the fall; None for the paper's.
      b: versions up to which a hinge stays at 1.
    """
    weight = decay(staleness, a, b)

    def move(server: Any, arrived: Pending, tau: Array) -> Any:
        return arrived.upload

    def merge(
        algorithm: Algorithm, server: Any, uploads: Any, cohort: Cohort, tau: Array
    ) -> Any:
        (share,) = alpha * weight(tau)
        return tree.lerp(server, tree.first(uploads), share)

    return Mode(
        buffer=1,
        versions=cohort,
        move=move,
        merge=merge,
        keeps_origin=False,
    )


@component
def fedbuff(
    cohort: AtLeastOne,
    *,
    buffer: AtLeastOne | None = None,
    server_lr: Positive = 1.0,
    staleness: Staleness = "polynomial",
    a: NotNegative | None = None,
    b: NotNegative = 6.0,
) -> Mode:
    """Updates the model after `buffer` uploads, a round (Nguyen et al., 2022).

    None is 10, or the cohort where that is smaller.

    Args:
      buffer: uploads that make a version; None is 10, or the cohort if smaller.
      server_lr: share of their mean change that is made.
      staleness: how late uploads count: "constant", "polynomial" or "hinge".
      a: slope of the fall; None for the paper's.
      b: versions up to which a hinge stays at 1.
    """
    size = min(BUFFER, cohort) if buffer is None else buffer
    if size > cohort:
        raise ValueError(
            f"mode 'fedbuff': buffer is {size}, but {cohort} clients train at a time; "
            f"choose buffer <= {cohort}, or a larger cohort"
        )
    weight = decay(staleness, a, b)

    def move(server: Any, arrived: Pending, tau: Array) -> Any:
        factor = weight(tau)

        def move_leaf(now: Array, upload: Array, origin: Array) -> Array:
            scale = tree.column(factor, upload).astype(upload.dtype)
            late = now + scale * (upload - origin)
            # A fresh upload keeps its bits, unlike now + (upload - now).
            return jnp.where(tree.column(tau, upload) == 0, upload, late)

        return jax.tree.map(move_leaf, server, arrived.upload, arrived.origin)

    def merge(
        algorithm: Algorithm, server: Any, uploads: Any, cohort: Cohort, tau: Array
    ) -> Any:
        mean = algorithm.aggregate(server, uploads, cohort)
        return mean if server_lr == 1 else tree.lerp(server, mean, server_lr)

    return Mode(
        buffer=size,
        versions=1,
        move=move,
        merge=merge,
        keeps_origin=True,
    )


MODES: dict[str, Callable[..., Mode | None]] = {
    "sync": sync,
    "fedasync": fedasync,
    "fedbuff": fedbuff,
}


def make(choice: Component, cohort: int) -> Mode | None:
    """The mode of a choice such as "fedbuff:buffer=5"; None for "sync".

    Raises:
      ValueError: a name or an option is unknown, or out of its range.
    """
    return build("mode", MODES, choice, cohort, returns=Mode)


def empty_pending(mode: Mode | None, cohort: int, num_clients: int) -> Any:
    """The slots of a run before its first round; () for synchronous rounds."""
    if mode is None:
        return ()
    return tree.stack_zeros(mode.like, mode.slots(cohort, num_clients))
