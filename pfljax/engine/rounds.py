"""One round, and many rounds in one program.

    ids = selection.choose; budgets = selection.work            (plan)
    chunks of `width` clients: vmap of message -> train         (cohort_training)
        -> channel.send; scatter the clients' new states
    channel.receive -> aggregate; the exchange `then`;
        selection.update, selection.observe, selection.evaluate (here)
    if the aggregate is a mean, large uploads are summed        (summing)

Keys derive from seed, round, client id and purpose, so that results depend neither on
`width` nor on the number of rounds in a call.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.channel import as_received
from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.types import (
    Array,
    ClientData,
    Cohort,
    Metrics,
    RunState,
)
from pfljax.engine import contract, mesh, summing
from pfljax.engine.architectures import train_groups
from pfljax.engine.cohort_training import train_cohort
from pfljax.engine.plan import Turns, cohort_key, make_cohort, plan
from pfljax.engine.setting import Setting, exchanges
from pfljax.selection.reports import TURN_SECONDS


def one_round(
    setting: Setting,
    state: RunState,
    train: ClientData,
    resident: Any = None,
    public: ClientData | None = None,
) -> tuple[RunState, Metrics]:
    """The state after one more round, and the cohort's mean training metrics.

    Args:
      setting: the fixed parts of the run.
      state: the state after the rounds before.
      train: the clients' training examples, offset and size i32[C].
      resident: i32[U], ascending, the clients whose states `state.clients` holds, one
        array for each group if there are several; None for all.
      public: the examples of the server, or None.

    Raises:
      ValueError: the method returns a state of another structure, shape or dtype.
    """
    turns = plan(setting, state, train, resident)
    contract.check_selection(setting)
    cohort = make_cohort(state, train, turns, public)
    metrics: Metrics = {}
    after = state
    uploads = ()
    for exchange in exchanges(setting):
        after, of_exchange, uploads = _exchange(
            exchange, after, train, turns, cohort, public
        )
        metrics = contract.join_metrics(metrics, of_exchange)
    contract.check_metrics(metrics)
    reports = metrics
    if setting.clock is not None:
        reports = metrics | {TURN_SECONDS: turns.waited}
    learned = setting.selection.update(state.selection, cohort, reports)
    learned = _show_model(setting, state, uploads, after.server, cohort, train, learned)
    counted = (turns.draws * turns.arrived).astype(jnp.int32)
    after = after._replace(
        round=state.round + 1,
        # An empty slot has the id C, past the end, and is dropped.
        participations=state.participations.at[turns.ids].add(counted, mode="drop"),
        cohort=turns.drawn,
        selection=mesh.whole(setting.mesh, learned),
    )
    means = _means(turns, metrics)
    if setting.clock is not None:
        means |= _time_metrics(turns)
    return after, means


def _show_model(
    setting: Setting,
    state: RunState,
    uploads: Any,
    server: Any,
    cohort: Cohort,
    train: ClientData,
    learned: Any,
) -> Any:
    """The selection's state after it has seen the new model, if it asks for that."""
    observe = setting.selection.observe
    evaluate = setting.selection.evaluate
    server_model = setting.algorithm.server_model
    # `contract.check_selection` has refused a selection that needs a missing model.
    if server_model is None or (observe is None and evaluate is None):
        return learned
    model = server_model(server)
    if observe is not None:
        contract.check_model(tree.first(uploads), model)
        learned = observe(learned, uploads, model, cohort)
    if evaluate is not None:
        key = cohort_key(state.key, state.round + 1)
        learned = evaluate(learned, model, train, key)
    return learned


def _exchange(
    setting: Setting,
    state: RunState,
    train: ClientData,
    turns: Turns,
    cohort: Cohort,
    public: ClientData | None,
) -> tuple[RunState, Metrics, Any]:
    """(state, metrics, uploads or their sums) after an exchange with the server."""
    weight = summing.upload_weights(setting, state.server, cohort)
    if setting.groups is not None:
        clients, uploads, metrics = train_groups(setting, state, train, turns, public)
    else:
        clients, uploads, metrics = train_cohort(
            setting, state, train, turns, public, weight
        )
        uploads = _number_uploads(setting, uploads, turns)
    if weight is None:
        uploads, cohort, channel_state = receive(setting, state, uploads, cohort)
        server = setting.algorithm.aggregate(state.server, uploads, cohort)
    else:
        server = summing.divide_sums(uploads, weight)
        channel_state = state.channel
    contract.check_state(setting.algorithm, "aggregate", "server", state.server, server)
    # Without uploads all weights are 0, and the result of `aggregate` is discarded.
    server = tree.where(cohort.mask.sum() > 0, server, state.server)
    after = state._replace(
        server=mesh.whole(setting.mesh, server),
        clients=clients,
        channel=mesh.whole(setting.mesh, channel_state),
    )
    return after, metrics, uploads


def _number_uploads(setting: Setting, uploads: Any, turns: Turns) -> Any:
    """(uploads, their places) by number of architecture, if the method tells them."""
    number = setting.algorithm.architecture
    if number is None:
        return uploads
    return {number: uploads}, {number: jnp.arange(turns.ids.shape[0])}


def receive(
    setting: Setting,
    state: RunState,
    sent: Any,
    cohort: Cohort,
) -> tuple[Any, Cohort, Any]:
    """(uploads that the server receives, their cohort, the channel's state)."""
    channel_state = state.channel
    alike = setting.algorithm.architecture is None
    uploads, places = (sent, ()) if alike else sent
    cohort = cohort._replace(places=places)
    if setting.channel is None:
        return uploads, cohort, channel_state
    receive = setting.channel.receive
    if receive is as_received:
        return uploads, cohort, channel_state
    key = derive(cohort.key, "channel")
    if alike:
        uploads, reports = uploads
        uploads, channel_state = receive(channel_state, key, uploads, reports, cohort)
        return uploads, cohort, channel_state
    # Architectures have uploads of different shapes: the channel gets one at a time.
    received = {}
    for number, senders in aggregation.senders(cohort).items():
        stack, reports = uploads[number]
        stack_key = derive(key, str(number))
        received[number], channel_state = receive(
            channel_state, stack_key, stack, reports, senders
        )
    return received, cohort, channel_state


def _means(turns: Turns, metrics: Metrics) -> Metrics:
    """Means over the examples of reporting clients, and counts of clients."""
    weight = turns.weight * turns.mask
    means = jax.tree.map(lambda leaf: aggregation.mean(leaf, weight), metrics)
    reported = turns.mask.sum() > 0
    means = jax.tree.map(lambda mean: jnp.where(reported, mean, jnp.nan), means)
    means["asked"] = (turns.draws > 0).sum().astype(jnp.float32)
    means["reported"] = turns.mask.sum()
    return means


def _time_metrics(turns: Turns) -> Metrics:
    """Virtual seconds of the round, and of each client that the server awaits."""
    return {
        "seconds": turns.waited.max(),
        "turn_client": turns.ids,
        TURN_SECONDS: turns.waited,
        "turn_reported": turns.mask,
    }


def rounds(
    setting: Setting,
    at_most: int,
    state: RunState,
    train: ClientData,
    count: Any,
    resident: Any = None,
    public: ClientData | None = None,
) -> tuple[RunState, Metrics]:
    """The state after `count` <= `at_most` rounds, and metrics f32[at_most] by round.

    `count` is traced, so that one program runs any number of rounds. `resident` and
    `public` are those of `one_round`; `resident` must have every client of the rounds.
    """
    if setting.mode is not None:
        raise ValueError(
            "the setting has an asynchronous mode, which these rounds would ignore; "
            "use pfljax.engine.asynchronous"
        )
    # Jitted, so that its two uses are traced once.
    step = jax.jit(functools.partial(one_round, setting), inline=True)

    def body(index: Array, carry: Any) -> Any:
        state, history = carry
        state, metrics = step(state, train, resident, public)
        return state, tree.put(history, index, metrics)

    _, shapes = jax.eval_shape(step, state, train, resident, public)
    start = state, tree.stack_zeros(shapes, at_most)
    return jax.lax.fori_loop(0, count, body, start)


def compile_rounds(setting: Setting, at_most: int) -> Callable[..., Any]:
    """`rounds` jitted as (state, train, count, resident, public); donates `state`."""
    return jax.jit(functools.partial(rounds, setting, at_most), donate_argnums=0)
