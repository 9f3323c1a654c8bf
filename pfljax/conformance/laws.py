"""The laws of methods: functions of a trial that raise an AssertionError.

     1  A second call compiles nothing.
     2  States keep their form and stay finite. Channels may be used.
     3  Rounds may be cut anywhere, also by a stop and a restored checkpoint.
     4  Width, padding and the number of devices change nothing.
     5  Clients may be renumbered. If all are drawn twice, each counts as if once.
     6  A client outside the cohort is unchanged, and any part of the work is allowed.
     7  Limit identities hold; for example, FedProx with mu = 0 is FedAvg.
     8  Bytes are as declared.
     9  No test example is read.
    10  A method has one file, one word and one paper.
    11  It lowers for CUDA and TPU; several devices make one all-reduce per round.
    12  One architecture in two groups gives the same result as in one.
    13  A method that does not declare `classes` takes real targets.

Law 7 has no general form, and is tested in tests/test_limits.py. The parts of laws 4
and 11 that need several devices are tested in tests/engine/test_mesh.py.
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
from pfljax.conformance.script import (
    ASKED,
    CLIENTS,
    MANY,
    PLACES,
    ROUNDS,
    compile_rounds,
    drop_empty_places,
    full_script,
    renumber,
)
from pfljax.conformance.source import one_file_one_word_one_paper
from pfljax.conformance.trial import Trial, make_setting, replay
from pfljax.conformance.uploads import (
    bytes_are_as_declared,
    channels_fit,
    draws_are_relative,
    means_are_enough,
    origins_are_uploads_of_no_step,
)
from pfljax.core.communication import (
    shapes_of_batch,
    shapes_of_server,
    trace_exchanges,
)
from pfljax.core.types import ClientData, Examples
from pfljax.engine.setting import Groups
from pfljax.runs import checkpoint

Law = Callable[[Trial], None]

# Client i of the renumbered toy is client OLD[i].
OLD = np.array([5, 2, 7, 0, 3, 6, 1, 4])


def compiles_once(trial: Trial) -> None:
    """A second call compiles nothing."""
    first, *later = trial.compiled
    assert first, "JAX reports no compilation"
    chex.assert_equal(later, [0] * (ROUNDS - 1))


def shapes_stay(trial: Trial) -> None:
    """Structure, shapes and dtypes never change, and everything stays finite."""
    states = [toy.words(state) for state in trial.states]
    chex.assert_trees_all_equal_shapes_and_dtypes(*states)
    chex.assert_tree_all_finite(states)
    chex.assert_equal([int(each.round) for each in trial.states], [*range(ROUNDS + 1)])


def cuts_are_free(trial: Trial) -> None:
    """Rounds may be cut anywhere."""
    half = replay(trial, trial.states[0], 3)
    whole = replay(trial, half, 3)
    # The states of the trial come from one call a round.
    toy.assert_same(half, trial.states[3])
    toy.assert_same(whole, trial.states[6])


def restores(trial: Trial) -> None:
    """A run that is stopped and restored continues as if it had never stopped."""
    saved = trial.states[3]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with checkpoint.writer(folder, "toy") as save:
            save(3, saved)
        restored = checkpoint.restore(folder, saved, "toy")
    assert restored is not None, "nothing was saved"
    continued = replay(trial, restored.state, 3)
    toy.assert_same(continued, trial.states[6])


def width_and_padding_are_free(trial: Trial) -> None:
    """The width of a chunk and empty places change nothing."""
    program = compile_rounds(trial.setting._replace(width=1))
    script = drop_empty_places(full_script())
    start = toy.copy(trial.states[0])
    first = start._replace(cohort=start.cohort[:ASKED])
    state, _ = program(first, trial.train, ROUNDS, script)
    last = trial.states[6]
    # Another width may be compiled to sums in another order.
    toy.assert_close(state.server, last.server)
    toy.assert_close(state.clients, last.clients)


def silence_is_absence(trial: Trial) -> None:
    """A client that does not report has the same effect as one that was not asked."""
    script = full_script()
    silent = script._replace(reports=script.reports.at[2].set(0))
    absent = silent._replace(cohorts=script.cohorts.at[:, 2].set(CLIENTS))
    first = trial.states[0]
    after_silence = replay(trial, first, ROUNDS, silent)
    after_absence = replay(trial, first, ROUNDS, absent)
    # Not the whole state: `cohort` names the clients that were asked.
    for name in ("server", "clients", "participations"):
        toy.assert_same(getattr(after_silence, name), getattr(after_absence, name))


def order_is_free(trial: Trial) -> None:
    """Clients may be renumbered and trained in another order.

    An axis of the server's leaves whose length is the number of clients is by client;
    no other axis of the toy has this length.
    """
    old = jnp.asarray(OLD)
    script = renumber(full_script(), old)
    train = trial.train
    renumbered_train = ClientData(
        examples=train.examples,
        offset=train.offset[old],
        size=train.size[old],
    )
    first = trial.states[0]
    # The first states are renumbered too, since a new `init` would use new numbers.
    renumbered_first = first._replace(
        clients=_take(first.clients, old),
        server=_by_client(first.server, old),
    )
    other = replay(
        trial._replace(train=renumbered_train),
        renumbered_first,
        ROUNDS,
        script,
    )
    last = trial.states[6]
    # Sums over the cohort have another order, so they are equal up to rounding.
    toy.assert_close(other.server, _by_client(toy.words(last.server), OLD))
    toy.assert_close(other.clients, _take(toy.words(last.clients), OLD))
    toy.assert_same(other.participations, last.participations[old])


def _by_client(server: Any, ids: Any) -> Any:
    """The server, with its axes by client in the order `ids`."""

    def reorder(leaf: Any) -> Any:
        for axis, length in enumerate(leaf.shape):
            if length == CLIENTS:
                leaf = leaf.take(ids, axis)
        return leaf

    return jax.tree.map(reorder, server)


def outsiders_rest(trial: Trial) -> None:
    """A client outside the cohort is unchanged, bit for bit."""
    for before, after in zip(trial.states, trial.states[1:], strict=False):
        took_part = after.participations - before.participations
        cohort = np.setdiff1d(after.cohort, CLIENTS)  # without the empty place
        chex.assert_trees_all_equal(np.flatnonzero(took_part), cohort)
        outside = np.setdiff1d(np.arange(CLIENTS), cohort)
        chex.assert_shape(outside, (CLIENTS - ASKED,))
        # In NumPy: indexing arrays of JAX would be compiled for every shape.
        clients_before = toy.words(before.clients)
        clients_after = toy.words(after.clients)
        toy.assert_same(_take(clients_before, outside), _take(clients_after, outside))


def any_work_will_do(trial: Trial) -> None:
    """Any part of the work keeps all states finite."""
    chex.assert_tree_all_finite(_after_parts_of_the_work(trial))


def steps_move_something(trial: Trial) -> None:
    """One step moves something, and further steps move more."""
    ends = _after_parts_of_the_work(trial)
    nothing, one_step, everything = map(_ravel, ends)
    # Otherwise a method that never trains would satisfy every law.
    assert not np.array_equal(nothing, one_step), "one step moves nothing"
    assert not np.array_equal(one_step, everything), "further steps move nothing"


def _after_parts_of_the_work(trial: Trial) -> list[Any]:
    """(server, clients) after a round of no step, of one step, and of all."""
    script = full_script()
    ends = []
    for most in (0, 1, MANY):
        work = script._replace(steps=jnp.full(PLACES, most))
        # From the fifth state: some methods train nothing in their first rounds.
        state = replay(trial, trial.states[5], 1, work)
        ends.append((state.server, state.clients))
    return ends


def newcomers_have_models(trial: Trial) -> None:
    """Clients that never took part, or are new, have finite models."""
    models = trial.evaluate(trial.states[0], trial.train)
    chex.assert_tree_all_finite(models)


def test_examples_are_not_read(trial: Trial) -> None:
    """Neither training nor `personal` reads a test example."""
    # A NaN example that is read makes everything it touches NaN, even under mask 0.
    poisoned = _poison_tests(trial.train)
    last = trial.states[6]
    after = replay(trial._replace(train=poisoned), trial.states[0], ROUNDS)
    toy.assert_same(after, last)
    personal, logits = trial.evaluate(last, trial.train)
    personal_among_nan, _ = trial.evaluate(last, poisoned)
    toy.assert_same(personal_among_nan, personal)
    chex.assert_shape(logits, (CLIENTS + 1, len(poisoned.examples.y), 3))
    chex.assert_tree_all_finite(logits)


def groups_are_free(trial: Trial) -> None:
    """One architecture in two groups gives the same result as in one."""
    method, task = trial.setting.algorithm, trial.task
    groups = Groups((method, method), (task, task), pattern=(0, 1, 1))
    members = [groups.members(group, CLIENTS) for group in range(2)]
    program = compile_rounds(trial.setting._replace(width=1, groups=groups))
    first = toy.copy(trial.states[0])
    stacks = tuple(_take(first.clients, ids) for ids in members)
    grouped = first._replace(clients=stacks)
    state, _ = program(grouped, trial.train, ROUNDS, full_script())
    last = trial.states[6]
    toy.assert_close(state.server, last.server)
    for stack, ids in zip(state.clients, members, strict=True):
        toy.assert_close(stack, _take(last.clients, ids))


def lowers_for_accelerators(trial: Trial) -> None:
    """It lowers for CUDA and TPU."""
    platforms = ("cuda", "tpu")
    args = trial.states[0], trial.train, 1, full_script()
    exported = jax.export.export(trial.program, platforms=platforms)(*args)
    chex.assert_equal(exported.platforms, platforms)


def real_targets_fit(trial: Trial) -> None:
    """A method that does not declare `classes` takes real targets."""
    # By shapes alone, which costs no program.
    task = toy.regression()
    algorithm = make_setting(trial.case, trial.factory, task).algorithm
    trace_exchanges(algorithm, task, CLIENTS, (3,))
    server = shapes_of_server(algorithm, task, CLIENTS)
    batch = shapes_of_batch(task, 2, (3,))
    if algorithm.server_model is not None and algorithm.personal is None:
        model = jax.eval_shape(algorithm.server_model, server)
        outputs = jax.eval_shape(algorithm.predict, model, batch)
        chex.assert_shape(outputs, (2, 1))


def _take(clients: Any, ids: Any) -> Any:
    """The states of these clients."""
    return jax.tree.map(lambda leaf: leaf[ids], clients)


def _ravel(tree: Any) -> np.ndarray:
    """All numbers of a tree."""
    return np.concatenate([array.ravel() for array in toy.arrays(tree)])


def _poison_tests(train: ClientData) -> ClientData:
    """The same training examples among examples of NaN."""
    pool = train.examples
    in_train = np.zeros(len(pool.y), bool)
    for offset, size in zip(train.offset, train.size, strict=True):
        in_train[offset : offset + size] = True
    # Without a test example in the pool every method would satisfy the law.
    assert not in_train.all()
    x = jnp.where(in_train[:, None], pool.x, jnp.nan)
    return train._replace(examples=Examples(x, pool.y))


LAWS: dict[str, Law] = {
    "1": compiles_once,
    "2": shapes_stay,
    "2 channel": channels_fit,
    "2 origin": origins_are_uploads_of_no_step,
    "2 mean": means_are_enough,
    "3 cut": cuts_are_free,
    "3 restored": restores,
    "4 width": width_and_padding_are_free,
    "4 silent": silence_is_absence,
    "5": order_is_free,
    "5 draws": draws_are_relative,
    "6": outsiders_rest,
    "6 work": any_work_will_do,
    "6 steps": steps_move_something,
    "6 newcomer": newcomers_have_models,
    "8": bytes_are_as_declared,
    "9": test_examples_are_not_read,
    "10": one_file_one_word_one_paper,
    "11": lowers_for_accelerators,
    "12": groups_are_free,
    "13": real_targets_fit,
}
# Each compiles or lowers its own program, in half of the time of all laws.
COMPILING = ("2 mean", "4 width", "5 draws", "11", "12")
# Laws of methods whose uploads depend on the steps that a client takes.
OF_STEPS = (origins_are_uploads_of_no_step, steps_move_something)
