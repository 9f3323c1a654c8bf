"""Trains several runs of one compiled program under one vmap, block after block.

The host evaluates, logs and saves each run as if it were alone (`simulate.loop`).
"""

import contextvars
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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


def train_together(
    runs: Sequence[Run], lanes: int, quiet: bool
) -> dict[int, Exception]:
    """Trains the runs to their ends; returns the errors of those that fail, by index.

    There are at most `lanes` runs. At SIGTERM it ends the program once all have saved
    their rounds.
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
            trained = _train_waiting(waiting, lanes, errors)
        if leaving:
            sys.exit(signals.REQUEUE)
    return errors


def _train_waiting(
    waiting: dict[int, Block], lanes: int, errors: dict[int, Exception]
) -> dict[int, Trained | None]:
    """What the blocks give; those of one program and count are one call."""
    alike: dict[Any, list[int]] = {}
    for index, block in waiting.items():
        size = len(block.run.federation.train.examples.y)
        kind = id(_program(block)), size, block.rounds
        alike.setdefault(kind, []).append(index)
    trained: dict[int, Trained | None] = {}
    for members in alike.values():
        try:
            given = _train_blocks([waiting[index] for index in members], lanes)
        except Exception as error:
            errors |= dict.fromkeys(members, error)
        else:
            trained |= dict(zip(members, given, strict=True))
    return trained


def _train_blocks(blocks: Sequence[Block], lanes: int) -> list[Trained]:
    """Trains the rounds of blocks that have one program and one count."""
    if lanes == 1:
        return [loop.train_block(blocks[0])]
    started = time.monotonic()
    data = [block.run.federation for block in blocks]
    pools = [each.train.examples for each in data]
    shares_pool = all(pool.x is pools[0].x for pool in pools)
    inputs = [
        Inputs(
            numbers=_numbers(blocks[i]),
            span=(data[i].train.offset, data[i].train.size),
            public=data[i].public,
            pool=None if shares_pool else pools[i],
        )
        for i in range(len(blocks))
    ]
    states = [block.state for block in blocks]
    # Always as many lanes: another number would sum in another order.
    for _ in range(lanes - len(blocks)):
        inputs.append(inputs[-1])
        states.append(jax.tree.map(loop.copy, blocks[-1].state))
    program = _together(Same(_program(blocks[0])))
    pool, count = pools[0] if shares_pool else None, blocks[0].rounds
    try:
        states, metrics = program(states, inputs, pool, count)
    finally:
        for block in blocks:
            block.pending()
    metrics = jax.device_get(metrics)
    # All go on at one pace, so that their next blocks have one count.
    seconds = (time.monotonic() - started) / len(blocks)
    return [
        (states[i], {name: m[i][:count] for name, m in metrics.items()}, seconds)
        for i in range(len(blocks))
    ]


class Inputs(NamedTuple):
    """In what runs of one program differ, beside their states."""

    numbers: Any  # None without any
    span: Any  # offset and size of the clients' examples, i32[C] each
    public: Any
    pool: Any  # None if all have one


def _program(block: Block) -> Any:
    """The compiled rounds, which runs of one kind share."""
    rounds = block.run.sim.rounds
    return rounds.program if isinstance(rounds, Bound) else rounds


def _numbers(block: Block) -> Any:
    """The traced numbers of the run; None without any."""
    rounds = block.run.sim.rounds
    return rounds.numbers if isinstance(rounds, Bound) else None


@memoize
def _together(program: Same) -> Any:
    """The rounds of several runs as one program, which donates their states."""

    def train(state: Any, own: Inputs, pool: Any, count: Any) -> Any:
        given = (state,) if own.numbers is None else (own.numbers, state)
        train = ClientData(own.pool or pool, *own.span)
        return program.value(*given, train, count, public=own.public)

    def all_runs(states: list, inputs: list, pool: Any, count: Any) -> Any:
        mapped = jax.vmap(train, in_axes=(0, 0, None, None))
        after, metrics = mapped(_stack(states), _stack(inputs), pool, count)
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
