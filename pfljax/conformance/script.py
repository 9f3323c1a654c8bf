"""Rounds that follow a script: clients asked and reporting, steps taken, keys used.

The script is an input of the compiled rounds, so that one program serves ten laws:
a method compiles four programs instead of eleven.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.channel import Channel, Sender, Sent
from pfljax.channel.base import with_change, with_origin
from pfljax.channel.origins import parts
from pfljax.conformance import toy
from pfljax.core import aggregation, tree
from pfljax.core.types import (
    Algorithm,
    Array,
    Cohort,
    Key,
    Metrics,
    Origin,
    Turn,
    Upload,
)
from pfljax.engine.rounds import rounds
from pfljax.selection import Selection

ROUNDS = 6
ASKED = 5  # clients of a round
PLACES = ASKED + 1  # of the cohort: the last one stays empty
CLIENTS = len(toy.SIZES)
MANY = 1000  # more steps than any client's budget


class Script(NamedTuple):
    """The rounds of the M places of the cohort."""

    cohorts: Array  # i32[ROUNDS, M], the client in each place; CLIENTS if it is empty
    reports: Array  # f32[M], 0 for an empty place, or a client that does not report
    steps: Array  # i32[M], the most steps of each
    keys: Array  # key[ROUNDS, CLIENTS], of each client's turns
    held_back: Array  # bool[], whether clients upload the origin of their change
    averaged: Array  # bool[], whether the server gets the mean upload from each client


@cache
def full_script() -> Script:
    """All clients that are asked do all of the work, and report."""
    rng = np.random.default_rng(0)
    everybody = np.tile(np.arange(CLIENTS), (ROUNDS, 1))
    asked = rng.permuted(everybody, axis=1)[:, :ASKED]
    cohorts = np.pad(asked, [(0, 0), (0, 1)], constant_values=CLIENTS)
    reports = np.arange(PLACES) < ASKED
    return Script(
        cohorts=jnp.asarray(cohorts, jnp.int32),
        reports=jnp.asarray(reports, jnp.float32),
        steps=jnp.full(PLACES, MANY),
        keys=jax.random.split(jax.random.key(2), (ROUNDS, CLIENTS)),
        held_back=jnp.bool_(False),
        averaged=jnp.bool_(False),
    )


def drop_empty_places(script: Script) -> Script:
    """The same rounds, in a cohort without empty places."""
    return script._replace(
        cohorts=script.cohorts[:, :ASKED],
        reports=script.reports[:ASKED],
        steps=script.steps[:ASKED],
    )


def renumber(script: Script, old: Any) -> Script:
    """The rounds of a script in which client `old[i]` has number i; places reversed.

    Each client keeps its keys; only its number changes.
    """
    new = jnp.argsort(old)
    new_or_empty = jnp.append(new, CLIENTS)
    cohorts = new_or_empty[script.cohorts]
    return script._replace(
        cohorts=cohorts[:, ::-1],
        reports=script.reports[::-1],
        steps=script.steps[::-1],
        keys=script.keys[:, old],
    )


def draw_again(script: Script, again: bool) -> Script:
    """Twice as many places, in which the same clients are drawn again, or nobody."""
    cohorts = jnp.tile(script.cohorts, 2)
    if not again:
        cohorts = cohorts.at[:, PLACES:].set(CLIENTS)
    return script._replace(
        cohorts=cohorts,
        reports=jnp.tile(script.reports, 2),
        steps=jnp.tile(script.steps, 2),
    )


def compile_rounds(setting: engine.Setting) -> Any:
    """The rounds of a setting, jitted as (state, train, count, script).

    The script replaces the selection and the channel. The state is donated.
    """
    return _compile(setting, replacement=False)


def compile_draws(setting: engine.Setting) -> Any:
    """`compile_rounds` in which a client may have several places of a cohort.

    Clients count by their draws, whatever their sizes, and uploads may be averaged.
    """
    return _compile(setting, replacement=True)


def _compile(setting: engine.Setting, replacement: bool) -> Any:
    def run(state, train, count, script):
        groups = setting.groups
        channel = average if replacement else count_uploads
        if groups is not None:
            methods = [_with_keys(script.keys, each) for each in groups.algorithms]
            groups = groups._replace(algorithms=tuple(methods))
        scripted = setting._replace(
            algorithm=_with_keys(script.keys, setting.algorithm),
            groups=groups,
            selection=scripted_selection(script)._replace(replacement=replacement),
            channel=channel(script),
        )
        return rounds(scripted, ROUNDS, state, train, count, public=toy.public())

    return jax.jit(run, donate_argnums=0)


def scripted_selection(script: Script) -> Selection:
    """The cohorts of the script; the selection's state counts the rounds."""

    def choose(round_: Array, key: Key) -> Array:
        return script.cohorts[round_]

    def work(round_: Array, key: Key, ids: Array, steps: Array) -> tuple[Array, Array]:
        return jnp.minimum(steps, script.steps), script.reports

    def update(round_: Array, cohort: Cohort, metrics: Metrics) -> Array:
        return round_ + 1

    return Selection(
        cohort=script.cohorts.shape[1],
        choose=choose,
        work=work,
        init=lambda: jnp.int32(0),
        update=update,
    )


def count_uploads(script: Script) -> Channel:
    """A channel that counts the uploads that pass through it.

    If they are `held_back`, a client sends the origin of its change.
    """

    def send(
        count: Array, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        start, values, others = parts(origin, upload)
        values = tree.where(script.held_back, start, values)
        return Sent(tree.merge(values, others))

    def receive(
        count: Array, key: Key, uploads: Upload, reports: Any, cohort: Cohort
    ) -> tuple[Upload, Array]:
        return uploads, count + cohort.mask.sum()

    return Channel(init=lambda start: jnp.float32(0), send=send, receive=receive)


def average(script: Script) -> Channel:
    """A channel that replaces every upload by their mean if they are `averaged`."""

    def receive(
        count: Array, key: Key, uploads: Upload, origins: Any, cohort: Cohort
    ) -> tuple[Upload, Array]:
        def mean(change: Any) -> Any:
            same = aggregation.repeat(aggregation.mean(change, cohort.mask), change)
            return tree.where(script.averaged, same, change)

        return with_change(origins, uploads, mean), count

    return Channel(init=lambda start: jnp.float32(0), send=with_origin, receive=receive)


def _with_keys(keys: Array, algorithm: Algorithm) -> Algorithm:
    """The method with these keys [ROUNDS, CLIENTS] for its turns.

    The engine derives the key of a turn from the client's number, so that a renumbered
    client would draw other minibatches. Here it keeps those of its old number.
    """

    def replace_key(turn: Turn) -> Turn:
        return turn._replace(key=keys[turn.round, turn.id])

    def message(turn, server, client):
        return algorithm.message(replace_key(turn), server, client)

    def train(turn, message, client, data):
        return algorithm.train(replace_key(turn), message, client, data)

    then = algorithm.then and _with_keys(keys, algorithm.then)
    return algorithm._replace(message=message, train=train, then=then)
