"""Work that adapts to what each client could do, and cohorts by value.

Li et al., FedSAE, IJCNN 2021, https://arxiv.org/abs/2104.07515. No code of the authors
is known: the rules are reconstructed from the paper's description.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.aggregation import record
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Count, Epochs, NotNegative, Positive
from pfljax.core.types import Array, Cohort, Key, Metrics
from pfljax.selection.base import Selection
from pfljax.selection.draws import draw_weighted, require_cohort
from pfljax.selection.reports import losses

FIRST = (1.0, 2.0)  # the easy and the hard work of the first round
FAST = 3.0  # fassa: a step of work below the threshold
SLOW = 1.0  # and above
MEMORY = 0.95  # of the threshold


class State(NamedTuple):
    """The knowledge of the server of each client; work is in epochs."""

    round: Array  # i32[], rounds finished
    easy: Array  # f32[C], L: a client that does less fails
    hard: Array  # f32[C], H: the work that is asked for
    threshold: Array  # f32[C], theta: the mean of what the client could do
    value: Array  # f32[C], v: sqrt(examples) times the last loss


class Devices(NamedTuple):
    """The work that clients can afford: epochs of a normal distribution each."""

    key: Key
    mean: Array  # f32[C], uniform in [5, 10)
    std: Array  # f32[C], uniform in [mean / 4, mean / 2)


@component
def fedsae(
    cohort: AtLeastOne,
    sizes: np.ndarray,
    epochs: Epochs,
    *,
    rule: Literal["ira", "fassa", "fixed"] = "ira",
    gain: Positive = 10.0,
    beta: NotNegative = 0.01,
    devices: Count = 0,
) -> Selection:
    """Asks each client for L to H epochs, which follow from its past rounds.

    A client that can afford only L sends its model after L epochs. One that cannot
    afford L fails, and its work is lost. After a failure its work is halved. After a
    success it grows: by `gain` / work (ira), or by 3 if it is less than what the client
    could afford on average, and else by 1 (fassa). "fixed" asks all clients for the
    epochs of the run, which no rule exceeds: FedAvg with drop-outs. If the run counts
    steps, work is in steps.

    A client is drawn in proportion to exp(beta v), where v is sqrt(examples) times its
    last loss; with beta = 0 the draw is uniform. What clients can afford is drawn in
    each round, from the seed `devices` and not from that of the run. It takes
    O(C log C) work.

    Args:
      rule: how work changes: "ira", "fassa" or "fixed".
      gain: growth of work after a success, for ira.
      beta: preference for large losses; 0 is uniform.
      devices: seed of what clients can afford.
    """
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    root_size = jnp.sqrt(jnp.asarray(sizes, jnp.float32))
    affordable = _make_devices(num_clients, devices)

    def choose(state: State, key: Key) -> Array:
        return draw_weighted(key, beta * state.value, cohort)

    def work(state: State, key: Key, ids: Array, steps: Array) -> Any:
        easy, hard = state.easy[ids], state.hard[ids]
        if rule == "fixed":
            whole = jnp.full(steps.shape, float(epochs)) if epochs else steps
            easy = hard = whole.astype(float)
        done = _finish(_afford(affordable, state.round, ids), easy, hard)
        taken = jnp.where(done > 0, _to_steps(done, steps, epochs), 0)
        return taken, (done > 0).astype(jnp.float32)

    def update(state: State, members: Cohort, metrics: Metrics) -> State:
        asked = jnp.where(members.draws > 0, members.ids, num_clients)
        afforded = _afford(affordable, state.round, members.ids)
        value = root_size[members.ids] * losses(metrics)
        value = record(state.value, value, members)
        state = state._replace(round=state.round + 1, value=value)
        return _learn(state, asked, afforded, rule, gain)

    return Selection(
        cohort=cohort,
        choose=choose,
        work=work,
        init=lambda: _init(num_clients),
        update=update,
    )


def _init(num_clients: int) -> State:
    """Makes the state before the first round."""
    easy, hard = FIRST
    return State(
        round=jnp.int32(0),
        easy=jnp.full(num_clients, easy, jnp.float32),
        hard=jnp.full(num_clients, hard, jnp.float32),
        threshold=jnp.zeros(num_clients),
        value=jnp.zeros(num_clients),
    )


def _make_devices(num_clients: int, seed: int) -> Devices:
    draw = np.random.default_rng(seed)
    mean = draw.uniform(5, 10, num_clients)
    std = draw.uniform(mean / 4, mean / 2)
    return Devices(
        key=jax.random.key(seed),
        mean=jnp.asarray(mean, jnp.float32),
        std=jnp.asarray(std, jnp.float32),
    )


def _afford(devices: Devices, round_: Array, ids: Array) -> Array:
    """Draws A, the epochs that these clients can afford in this round, f32[M]."""
    round_key = jax.random.fold_in(devices.key, round_)

    def draw(client: Array) -> Array:
        return jax.random.normal(jax.random.fold_in(round_key, client))

    noise = jax.vmap(draw)(ids)
    # An empty place has a number past the end; its noise is not read.
    return jnp.maximum(devices.mean[ids] + devices.std[ids] * noise, 0)


def _finish(afforded: Array, easy: Array, hard: Array) -> Array:
    """Returns the work that is done, f32[M]: `hard`, or `easy`, or none."""
    done = jnp.where(afforded >= easy, easy, 0.0)
    return jnp.where(afforded >= hard, hard, done)


def _to_steps(work: Array, steps: Array, epochs: Any) -> Array:
    """Converts epochs to steps, at least one and at most `steps`, those of all epochs.

    Where the run counts steps, work is steps.
    """
    per_epoch = steps / epochs if epochs else 1.0
    # A part of an epoch is whole steps; rounded up, so that all epochs are all steps.
    wanted = jnp.ceil(work * per_epoch - 1e-4).astype(jnp.int32)
    return jnp.minimum(jnp.maximum(wanted, 1), steps)


def _learn(
    state: State, asked: Array, afforded: Array, rule: str, gain: float
) -> State:
    """Updates the work of clients that could afford this; ids past the end drop."""
    if rule == "fixed":
        return state
    easy = state.easy[asked]
    hard = state.hard[asked]
    before = state.threshold[asked]
    # A client that was never asked starts with the first.
    moved = MEMORY * before + (1 - MEMORY) * afforded
    threshold = jnp.where(before > 0, moved, afforded)

    def grown(work: Array) -> Array:
        if rule == "ira":
            return work + gain / work
        return work + jnp.where(work < threshold, FAST, SLOW)

    middle = (easy + hard) / 2
    success = afforded >= hard
    failure = afforded < easy
    partly_easy = jnp.minimum(grown(easy), middle)
    partly_hard = jnp.maximum(grown(easy), middle)
    new_easy = jnp.where(success, grown(easy), partly_easy)
    new_hard = jnp.where(success, grown(hard), partly_hard)
    new_easy = jnp.where(failure, easy / 2, new_easy)
    new_hard = jnp.where(failure, hard / 2, new_hard)
    # The smaller work grows more, maybe past the other: the smaller one is the easy.
    lower = jnp.minimum(new_easy, new_hard)
    upper = jnp.maximum(new_easy, new_hard)
    return state._replace(
        easy=state.easy.at[asked].set(lower, mode="drop"),
        hard=state.hard.at[asked].set(upper, mode="drop"),
        threshold=state.threshold.at[asked].set(threshold, mode="drop"),
    )
