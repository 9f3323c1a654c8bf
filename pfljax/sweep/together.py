"""Trains several runs of one compiled program under one vmap, block after block.

The host evaluates, logs and saves each run as if it were alone (`simulate.loop`).
"""

import contextvars
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.types import ClientData
from pfljax.engine.asynchronous import AsyncRounds
from pfljax.runtime import memory, signals
from pfljax.runtime.programs import Same, memoize
from pfljax.simulate import loop, width
from pfljax.simulate.begin import Run
from pfljax.simulate.loop import Block, Trained
from pfljax.simulate.traced import Bound


def train_together(runs: Sequence[Run], quiet: bool) -> dict[int, Exception]:
    """Trains the runs to their ends; returns the errors of those that fail, by index.

    At SIGTERM it ends the program once all have saved their rounds.
    """
    blocks = [loop.train(run, quiet) for run in runs]
    # Orbax keeps its settings in a variable of the context.
    contexts = [contextvars.copy_context() for _ in runs]
    errors: dict[int, Exception] = {}
    leaving = False
    trained: dict[int, Trained | None] = dict.fromkeys(range(len(runs)))
    with signals.deferred():
        while trained:
            waiting: dict[int, Block] = {}
            for index, given in trained.items():
                try:
                    block = contexts[index].run(blocks[index].send, given)
                    waiting[index] = block
                except StopIteration:
                    continue
                except SystemExit:  # it has saved its rounds
                    leaving = True
                except Exception as error:
                    errors[index] = error
            trained = _train_waiting(waiting, errors)
        if leaving:
            sys.exit(signals.REQUEUE)
    return errors


def _train_waiting(
    waiting: dict[int, Block], errors: dict[int, Exception]
) -> dict[int, Trained | None]:
    """What the blocks give; blocks of equal programs, pools and counts are one call."""
    alike: dict[Any, list[int]] = {}
    for index, block in waiting.items():
        pool = block.run.federation.train.examples
        kind = id(_program(block)), id(pool.x), block.count
        alike.setdefault(kind, []).append(index)
    trained: dict[int, Trained | None] = {}
    for members in alike.values():
        blocks = [waiting[index] for index in members]
        try:
            given = _train_blocks(blocks)
        except Exception as error:
            errors |= dict.fromkeys(members, error)
        else:
            trained |= dict(zip(members, given, strict=True))
    return trained


def _train_blocks(blocks: Sequence[Block]) -> list[Trained]:
    """Trains the rounds of blocks that have one program, one pool and one count."""
    if len(blocks) == 1:
        return [loop.train_block(blocks[0])]
    started = time.monotonic()
    rounds = [block.run.sim.rounds for block in blocks]
    data = [block.run.federation for block in blocks]
    numbers = [r.numbers if isinstance(r, Bound) else {} for r in rounds]
    states = [block.state for block in blocks]
    spans = [(each.train.offset, each.train.size) for each in data]
    public = [each.public for each in data]
    program = _together(Same(_program(blocks[0])), isinstance(rounds[0], Bound))
    pool, count = data[0].train.examples, blocks[0].count
    try:
        states, metrics = program(states, numbers, spans, public, pool, count)
    finally:
        for block in blocks:
            block.pending()
    metrics = jax.device_get(metrics)
    # All go on at one pace, so that their next blocks have one count.
    seconds = (time.monotonic() - started) / len(blocks)
    return [
        (state, {name: metric[i][:count] for name, metric in metrics.items()}, seconds)
        for i, state in enumerate(states)
    ]


def _program(block: Block) -> Any:
    """The compiled rounds, which runs of one kind share."""
    rounds = block.run.sim.rounds
    return rounds.program if isinstance(rounds, Bound) else rounds


@memoize
def _together(program: Same, has_numbers: bool) -> Any:
    """The rounds of several runs as one program, which donates their states."""

    def train(state: Any, numbers: Any, span: Any, public: Any, pool: Any, count: Any):
        given = (numbers, state) if has_numbers else (state,)
        train = ClientData(pool, *span)
        return program.value(*given, train, count, public=public)

    def all_runs(states: list, numbers: list, spans: list, public: list, *same: Any):
        stacked = [_stack(each) for each in (states, numbers, spans, public)]
        mapped = jax.vmap(train, in_axes=(0, 0, 0, 0, None, None))
        after, metrics = mapped(*stacked, *same)
        lanes = range(len(states))
        return [jax.tree.map(lambda leaf, i=i: leaf[i], after) for i in lanes], metrics

    return jax.jit(all_runs, donate_argnums=0)


def _stack(trees: list) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def can_join(run: Run) -> bool:
    """Whether the run can train under a vmap with others; asynchronous ones cannot."""
    return run.sim.paging is None and not isinstance(run.sim.rounds, AsyncRounds)


def share_pool(run: Run, other: Run) -> Run:
    """The run, with the examples of the other one on the devices if they are equal."""
    own, theirs = run.federation.train.examples, other.federation.train.examples
    same = jax.tree.map(
        lambda a, b: a.shape == b.shape and bool(jnp.array_equal(a, b)), own, theirs
    )
    if not all(jax.tree.leaves(same)):
        return run
    parts = {
        name: part._replace(examples=theirs)
        for name, part in run.federation.parts.items()
    }
    return run._replace(federation=replace(run.federation, **parts))


def count_fitting(run: Run) -> int:
    """The runs like this one that fit into the free memory together."""
    needed = width.bytes_needed(run.sim, run.federation)
    return max(1, int(memory.free_bytes(1) // max(1, needed)))
