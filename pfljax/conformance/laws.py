"""The laws: functions of a played method that raise an AssertionError.

     1  A second call compiles nothing.
     2  The form of states never changes, and they stay finite. Channels may be used.
     3  Rounds may be cut, also by a stop and a restored checkpoint.
     4  Width, padding and the number of devices change nothing.
     5  Clients may be renumbered.
     6  Who does not take part is unchanged; any part of the work will do.
     7  Limit identities, such as: FedProx of mu = 0 is FedAvg.
     8  Bytes are as declared.
     9  No test row is read.
    10  A method is one file, one word, one paper.
    11  It lowers for CUDA and TPU; several devices make one all-reduce a round.
    12  One architecture in two groups is as in one.

In a checkout alone are tested: law 7, which has no general form (tests/test_limits.py);
of laws 4 and 11 what needs several devices (tests/engine/test_mesh.py), for a process
that has started JAX gets no more of them. It is the engine that deals clients to
devices, whatever the method.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from pfljax.conformance import toy
from pfljax.conformance.play import Played
from pfljax.conformance.replay import in_one_vector, poisoned, replayed, rows_of
from pfljax.conformance.script import (
    ASKED,
    CLIENTS,
    PLACES,
    ROUNDS,
    as_written,
    compile_rounds,
    renumbered,
    without_empty_places,
)
from pfljax.conformance.source import one_file_one_word_one_paper
from pfljax.conformance.uploads import channels_fit, origins_are_uploads_of_no_step
from pfljax.core.communication import traffic_of
from pfljax.core.types import ClientData
from pfljax.engine.setting import Groups
from pfljax.runs import checkpoint
from pfljax.simulate.components import WIDTHS

Law = Callable[[Played], None]

# Client i of the renumbered toy is client OLD[i].
OLD = np.array([5, 2, 7, 0, 3, 6, 1, 4])


def compiles_once(played: Played) -> None:
    """A second call compiles nothing."""
    first, *later = played.compiled
    assert first, "JAX reports no compilation; this law cannot be judged"
    chex.assert_equal(later, [0] * (ROUNDS - 1))


def shapes_stay(played: Played) -> None:
    """Structure, shapes and dtypes never change, and everything stays finite."""
    states = [toy.words(state) for state in played.states]
    chex.assert_trees_all_equal_shapes_and_dtypes(*states)
    chex.assert_tree_all_finite(states)
    rounds = [int(state.round) for state in played.states]
    chex.assert_equal(rounds, list(range(ROUNDS + 1)))


def cuts_are_free(played: Played) -> None:
    """Rounds may be cut anywhere."""
    half = replayed(played, played.states[0], 3)
    whole = replayed(played, half, 3)
    # The states were played a round a call.
    toy.assert_same(half, played.states[3])
    toy.assert_same(whole, played.states[6])


def restores(played: Played) -> None:
    """Stop, restore and go on is going on."""
    saved = played.states[3]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with checkpoint.writer(folder, "toy") as save:
            save(3, saved)
        restored = checkpoint.restore(folder, saved, "toy")
    assert restored is not None, "nothing was saved"
    continued = replayed(played, restored.state, 3)
    toy.assert_same(continued, played.states[6])


def width_and_padding_are_free(played: Played) -> None:
    """The width of a chunk and empty places change nothing."""
    setting = played.setting._replace(width=1)
    program = compile_rounds(setting)
    script = without_empty_places(as_written())
    first = toy.copy(played.states[0])
    first = first._replace(cohort=first.cohort[:ASKED])
    state, _ = program(first, played.train, ROUNDS, script)
    last = played.states[6]
    # Another width may be compiled to sums in another order.
    toy.assert_close(state.server, last.server)
    toy.assert_close(state.clients, last.clients)


def silence_is_absence(played: Played) -> None:
    """Who does not report is as if never asked."""
    script = as_written()
    silent = script._replace(reports=script.reports.at[2].set(0))
    absent = silent._replace(cohorts=script.cohorts.at[:, 2].set(CLIENTS))
    first = played.states[0]
    unheard = replayed(played, first, ROUNDS, silent)
    unasked = replayed(played, first, ROUNDS, absent)
    # Not the whole state: `cohort` names who was asked, which differs.
    toy.assert_same(unheard.server, unasked.server)
    toy.assert_same(unheard.clients, unasked.clients)
    toy.assert_same(unheard.participations, unasked.participations)


def order_is_free(played: Played) -> None:
    """Clients renumbered and trained in another order: the same states and server.

    Axes of the server's leaves that are as long as there are clients are by client; no
    other axis of the toy is as long.
    """
    old = jnp.asarray(OLD)
    script = renumbered(as_written(), old)
    train = played.train
    renumbered_train = ClientData(
        examples=train.examples,
        offset=train.offset[old],
        size=train.size[old],
    )
    first = played.states[0]
    # The states begin renumbered as well: a new `init` would draw by the new numbers.
    renumbered_first = first._replace(
        clients=rows_of(first.clients, old),
        server=_by_client(first.server, old),
    )
    other = replayed(
        played._replace(train=renumbered_train),
        renumbered_first,
        ROUNDS,
        script,
    )
    last = played.states[6]
    # Sums over the cohort have another order: equal but for rounding.
    toy.assert_close(other.server, _by_client(toy.words(last.server), OLD))
    toy.assert_close(other.clients, rows_of(toy.words(last.clients), OLD))
    toy.assert_same(other.participations, last.participations[old])


def _by_client(server: Any, rows: Any) -> Any:
    """The server, where what is by client is in the order `rows`."""

    def of_leaf(leaf: Any) -> Any:
        for axis, length in enumerate(leaf.shape):
            if length == CLIENTS:
                leaf = leaf.take(rows, axis)
        return leaf

    return jax.tree.map(of_leaf, server)


def outsiders_rest(played: Played) -> None:
    """A client outside the cohort is unchanged, bit for bit."""
    for before, after in zip(played.states, played.states[1:], strict=False):
        took_part = after.participations - before.participations
        cohort = np.setdiff1d(after.cohort, CLIENTS)  # without the empty place
        chex.assert_trees_all_equal(np.flatnonzero(took_part), cohort)
        outside = np.setdiff1d(np.arange(CLIENTS), cohort)
        chex.assert_shape(outside, (CLIENTS - ASKED,))
        # In NumPy: rows of JAX's arrays would be compiled for every shape.
        clients_before = toy.words(before.clients)
        clients_after = toy.words(after.clients)
        toy.assert_same(
            rows_of(clients_before, outside), rows_of(clients_after, outside)
        )


def any_work_will_do(played: Played) -> None:
    """Any part of the work keeps all finite."""
    chex.assert_tree_all_finite(_after_parts_of_the_work(played))


def steps_move_something(played: Played) -> None:
    """One step moves something, and further steps move more."""
    ends = _after_parts_of_the_work(played)
    nothing, one_step, everything = map(in_one_vector, ends)
    # Else a method that never trains would keep every law.
    assert not np.array_equal(nothing, one_step), "one step moves nothing"
    assert not np.array_equal(one_step, everything), "further steps move nothing"


def _after_parts_of_the_work(played: Played) -> list[Any]:
    """(server, clients) after a round of no step, one step, and all."""
    script = as_written()
    ends = []
    for most in (0, 1, None):
        work = script
        if most is not None:
            work = script._replace(steps=jnp.full(PLACES, most))
        # Of the fifth state: some methods train nothing in their first rounds.
        state = replayed(played, played.states[5], 1, work)
        ends.append((state.server, state.clients))
    return ends


def newcomers_are_judged(played: Played) -> None:
    """Clients that never took part, or were never seen, have finite models."""
    models = played.judge(played.states[0], played.train)
    chex.assert_tree_all_finite(models)


def bytes_are_as_declared(played: Played) -> None:
    """Declared bytes are the leaves of message and upload."""
    assert played.case.bytes is not None, "no bytes are declared"
    algorithm = played.setting.algorithm
    traffic = traffic_of(algorithm, played.task, CLIENTS, (3,))
    chex.assert_equal(tuple(traffic), tuple(played.case.bytes))


def test_rows_are_not_read(played: Played) -> None:
    """Neither training nor `personal` reads a test row."""
    # A row of NaN that is read makes NaN of whatever it touches, even under mask 0.
    among_nan = poisoned(played.train)
    last = played.states[6]
    among_poison = played._replace(train=among_nan)
    trained = replayed(among_poison, played.states[0], ROUNDS)
    toy.assert_same(trained, last)
    personal, logits = played.judge(last, played.train)
    personal_among_poison, _ = played.judge(last, among_nan)
    toy.assert_same(personal_among_poison, personal)
    count = len(among_nan.examples.y)
    chex.assert_shape(logits, (CLIENTS + 1, count, 3))
    chex.assert_tree_all_finite(logits)


def groups_are_free(played: Played) -> None:
    """One architecture in two groups is as in one."""
    method, task = played.setting.algorithm, played.task
    groups = Groups((method, method), (task, task), pattern=(0, 1, 1))
    members = [groups.members(group, CLIENTS) for group in range(2)]
    program = compile_rounds(played.setting._replace(width=1, groups=groups))
    first = toy.copy(played.states[0])
    stacks = tuple(rows_of(first.clients, ids) for ids in members)
    grouped = first._replace(clients=stacks)
    state, _ = program(grouped, played.train, ROUNDS, as_written())
    last = played.states[6]
    toy.assert_close(state.server, last.server)
    for stack, ids in zip(state.clients, members, strict=True):
        toy.assert_close(stack, rows_of(last.clients, ids))


def lowers_for_accelerators(played: Played) -> None:
    """It lowers for CUDA and TPU at that platform's default width."""
    args = played.states[0], played.train, 1, as_written()
    # Platforms of one width share an export: lowering takes most of this law's time.
    platforms: dict[int | None, list[str]] = {}
    for platform in ("cuda", "tpu"):
        platforms.setdefault(WIDTHS.get(platform), []).append(platform)
    for width, names in platforms.items():
        program = played.program
        if width != played.setting.width:
            program = compile_rounds(played.setting._replace(width=width))
        exported = jax.export.export(program, platforms=names)(*args)
        chex.assert_equal(exported.platforms, tuple(names))


LAWS: dict[str, Law] = {
    "1": compiles_once,
    "2": shapes_stay,
    "2 channel": channels_fit,
    "2 origin": origins_are_uploads_of_no_step,
    "3 cut": cuts_are_free,
    "3 restored": restores,
    "4 width": width_and_padding_are_free,
    "4 silent": silence_is_absence,
    "5": order_is_free,
    "6": outsiders_rest,
    "6 work": any_work_will_do,
    "6 steps": steps_move_something,
    "6 newcomer": newcomers_are_judged,
    "8": bytes_are_as_declared,
    "9": test_rows_are_not_read,
    "10": one_file_one_word_one_paper,
    "11": lowers_for_accelerators,
    "12": groups_are_free,
}
# Of methods whose uploads depend on the steps that a client takes.
OF_STEPS = (origins_are_uploads_of_no_step, steps_move_something)
