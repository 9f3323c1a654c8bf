"""The laws: functions of a played method that raise an AssertionError.

Numbers are those of the architecture. Law 7 has no general form: the limit identities
of a method stand with its tests.
"""

import ast
import inspect
import io
import tempfile
import tokenize
from collections.abc import Callable
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.conformance import toy
from pfljax.conformance.play import (
    ASKED,
    CLIENTS,
    PLACES,
    ROUNDS,
    Played,
    Script,
    as_drawn,
    scripted,
)
from pfljax.core.communication import traffic_of
from pfljax.core.types import ClientData, Examples, RunState
from pfljax.runs import checkpoint
from pfljax.simulate.components import WIDTHS

Law = Callable[[Played], None]

TABLE = ("Server ", "Client ", "Message ", "Upload ", "https://")
OLD = (5, 2, 7, 0, 3, 6, 1, 4)  # client i of the renumbered toy is client OLD[i]


def compiles_once(played: Played) -> None:
    """A second call compiles nothing."""
    chex.assert_equal(played.compiled, [1] * ROUNDS)


def shapes_stay(played: Played) -> None:
    """Structure, shapes and dtypes never change, and everything stays finite."""
    states = [toy.words(state) for state in played.states]
    chex.assert_trees_all_equal_shapes_and_dtypes(*states)
    chex.assert_tree_all_finite(states)
    rounds = [int(state.round) for state in played.states]
    chex.assert_equal(rounds, list(range(ROUNDS + 1)))


def cuts_are_free(played: Played) -> None:
    """Rounds may be cut anywhere."""
    half = _rounds(played, played.states[0], 3)
    whole = _rounds(played, half, 3)
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
    continued = _rounds(played, restored, 3)
    toy.assert_same(continued, played.states[6])


def width_and_padding_are_free(played: Played) -> None:
    """The width of a chunk and empty places change nothing."""
    setting = played.setting._replace(width=1)
    program = engine.compile_rounds(setting, ROUNDS)
    first = toy.copy(played.states[0])
    first = first._replace(cohort=first.cohort[:ASKED])  # there is no empty place
    state, _ = program(first, played.train, ROUNDS)
    last = played.states[6]
    # Another width may be compiled to sums in another order.
    toy.assert_close(state.server, last.server)
    toy.assert_close(state.clients, last.clients)


def silence_is_absence(played: Played) -> None:
    """Who does not report is as if never asked."""
    others = jnp.arange(PLACES) != 2
    script = as_drawn()
    silent = script._replace(reports=script.reports * others)
    absent = script._replace(asked=script.asked & others)
    first = played.states[0]
    unheard = _rounds(played, first, ROUNDS, silent)
    unasked = _rounds(played, first, ROUNDS, absent)
    # Not the whole state: `cohort` names who was asked, which differs.
    toy.assert_same(unheard.server, unasked.server)
    toy.assert_same(unheard.clients, unasked.clients)
    toy.assert_same(unheard.participations, unasked.participations)


def order_is_free(played: Played) -> None:
    """Clients renumbered and trained in another order: the same states and server."""
    old = jnp.asarray(OLD)
    script = as_drawn()._replace(
        order=jnp.arange(PLACES)[::-1],
        number=jnp.argsort(old),
        drawn=old,
    )
    train = played.train
    renumbered_train = ClientData(
        examples=train.examples,
        offset=train.offset[old],
        size=train.size[old],
    )
    first = played.states[0]
    # The states begin renumbered as well: a new `init` would draw by the new numbers.
    renumbered_first = first._replace(clients=_of(first, old))
    renumbered = _rounds(
        played._replace(train=renumbered_train),
        renumbered_first,
        ROUNDS,
        script,
    )
    last = played.states[6]
    # Sums over the cohort have another order: equal but for rounding.
    toy.assert_close(renumbered.server, last.server)
    toy.assert_close(renumbered.clients, _of(last, old))
    toy.assert_same(renumbered.participations, last.participations[old])


def outsiders_rest(played: Played) -> None:
    """A client outside the cohort is unchanged, bit for bit."""
    for before, after in zip(played.states, played.states[1:], strict=False):
        took_part = after.participations - before.participations
        cohort = np.setdiff1d(after.cohort, CLIENTS)  # without the empty place
        chex.assert_trees_all_equal(np.flatnonzero(took_part), cohort)
        outside = np.setdiff1d(np.arange(CLIENTS), cohort)
        chex.assert_shape(outside, (CLIENTS - ASKED,))
        toy.assert_same(_of(before, outside), _of(after, outside))


def any_work_will_do(played: Played) -> None:
    """Any part of the work keeps all finite, and one step moves something."""
    script = as_drawn()
    ends = []
    for most in (0, 1, None):
        work = script
        if most is not None:
            work = script._replace(steps=jnp.full(PLACES, most))
        # Of the fifth state: some methods train nothing in their first rounds.
        state = _rounds(played, played.states[5], 1, work)
        ends.append((state.server, state.clients))
    chex.assert_tree_all_finite(ends)
    # Else a method that never trains would keep every law.
    if played.case.ignores_steps:
        return
    nothing, one_step, everything = map(_flat, ends)
    assert not np.array_equal(nothing, one_step), "one step moves nothing"
    assert not np.array_equal(one_step, everything), "further steps move nothing"


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
    poisoned = _poisoned(played.train)
    last = played.states[6]
    among_poison = played._replace(train=poisoned)
    trained = _rounds(among_poison, played.states[0], ROUNDS)
    toy.assert_same(trained, last)
    personal, logits = played.judge(last, played.train)
    personal_among_poison, _ = played.judge(last, poisoned)
    toy.assert_same(personal_among_poison, personal)
    count = len(poisoned.examples.y)
    chex.assert_shape(logits, (CLIENTS + 1, count, 3))
    chex.assert_tree_all_finite(logits)


def one_file_one_word_one_paper(played: Played) -> None:
    """File, function and key are one word; a table, a link, under 100 code lines."""
    name = played.case.name
    path = Path(inspect.getsourcefile(played.factory) or "")
    source = path.read_text()
    chex.assert_equal(path.stem, name)
    chex.assert_equal(played.factory.__name__, name)
    module = ast.parse(source)
    docstring = ast.get_docstring(module) or ""
    missing = [word for word in TABLE if word not in docstring]
    assert not missing, f"the docstring of {path} lacks {missing}"
    count = _code_lines(source)
    assert count < 100, f"{path} has {count} code lines"


def lowers_for_accelerators(played: Played) -> None:
    """It lowers for CUDA and TPU at that platform's default width."""
    args = played.states[0], played.train, 1, as_drawn()
    # Platforms of one width share an export: lowering takes most of this law's time.
    platforms: dict[int | None, list[str]] = {}
    for platform in ("cuda", "tpu"):
        platforms.setdefault(WIDTHS.get(platform), []).append(platform)
    for width, names in platforms.items():
        program = played.program
        if width != played.setting.width:
            program = scripted(played.setting._replace(width=width))
        exported = jax.export.export(program, platforms=names)(*args)
        chex.assert_equal(exported.platforms, tuple(names))


LAWS: dict[str, Law] = {
    "1": compiles_once,
    "2": shapes_stay,
    "3 cut": cuts_are_free,
    "3 restored": restores,
    "4 width": width_and_padding_are_free,
    "4 silent": silence_is_absence,
    "5": order_is_free,
    "6": outsiders_rest,
    "6 work": any_work_will_do,
    "6 newcomer": newcomers_are_judged,
    "8": bytes_are_as_declared,
    "9": test_rows_are_not_read,
    "10": one_file_one_word_one_paper,
    "11": lowers_for_accelerators,
}


def _rounds(
    played: Played,
    state: RunState,
    count: int,
    script: Script | None = None,
) -> RunState:
    """The state after `count` more rounds; `state` is kept."""
    script = script or as_drawn()
    # The program donates its state, and laws look at one state again and again.
    state = toy.copy(state)
    after, _ = played.program(state, played.train, count, script)
    return after


def _of(state: RunState, rows):
    """The states of the clients at `rows`."""
    return jax.tree.map(lambda leaf: leaf[rows], state.clients)


def _flat(tree) -> np.ndarray:
    """All numbers of a tree in one vector."""
    return np.concatenate([array.ravel() for array in toy.arrays(tree)])


def _poisoned(train: ClientData) -> ClientData:
    """The same training rows among rows of NaN."""
    pool = train.examples
    in_train = np.zeros(len(pool.y), bool)
    for offset, size in zip(train.offset, train.size, strict=True):
        in_train[offset : offset + size] = True
    # Without a test row in the pool the law would hold of anything.
    assert not in_train.all()
    x = jnp.where(in_train[:, None], pool.x, jnp.nan)
    return train._replace(examples=Examples(x, pool.y))


def _code_lines(source: str) -> int:
    """Lines with code: no blanks, comments or docstrings."""
    code = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
    lines = set()
    # Not by the first letters of a line: a docstring may hold a "#", or code.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in code:
            line, _ = token.start
            lines.add(line)
    return len(lines)
