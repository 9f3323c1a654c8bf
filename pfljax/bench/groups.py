"""Clients of several architectures in one round, beside each group of equals alone.

A group alone is a federation of its members, of whom as many take part. It has the
method of its model and its part of the rows. Both are timed in turn in one process.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from pfljax.bench import measure
from pfljax.bench.measure import Program, Sample, spread
from pfljax.bench.workloads import Ready, make_mesh, place
from pfljax.core.types import ClientData, RunState
from pfljax.runtime import compiling, memory
from pfljax.selection import uniform

Result = dict[str, Any]


class Together(NamedTuple):
    """What was made for all groups in one round."""

    state: RunState  # before the first round
    program: Program
    first_state_seconds: float  # to compile and make it


class Alone(NamedTuple):
    """A group without the others, after some rounds."""

    ready: Ready
    program: Program
    state: RunState


def parts(ready: Ready) -> list[Ready]:
    """Each group of equals as a workload; the workload itself where there is one."""
    groups = ready.setting.groups
    if groups is None:
        return [ready]
    return [_part(ready, group) for group in range(len(groups.tasks))]


def _part(ready: Ready, group: int) -> Ready:
    """The workload of one group's members."""
    groups = ready.setting.groups
    assert groups is not None
    members = groups.members(group, ready.workload.clients)
    cohort = ready.workload.cohort * len(members) // ready.workload.clients
    workload = ready.workload._replace(
        model=ready.workload.architectures[group],
        clients=len(members),
        cohort=max(1, cohort),
    )
    setting = ready.setting._replace(
        algorithm=groups.algorithms[group],
        selection=uniform(workload.cohort, workload.clients),
        mesh=make_mesh(workload),
        groups=None,
    )
    train = ClientData(
        examples=ready.train.examples,
        offset=ready.train.offset[members],
        size=ready.train.size[members],
    )
    return ready._replace(
        workload=workload,
        task=groups.tasks[group],
        setting=setting,
        train=place(setting, train),
    )


def mean(figure: Callable[[Ready], float | None], ready: Ready) -> float | None:
    """The mean of a figure over the clients of all groups; None where one has none."""
    total = 0.0
    for part in parts(ready):
        value = figure(part)
        if value is None:
            return None
        total += part.workload.clients * value
    return total / ready.workload.clients


def together(ready: Ready, rounds: int) -> Together:
    """The first state and the compiled rounds; of several groups without a cache."""
    if ready.setting.groups is None:
        return _made(ready, rounds)
    with compiling.without_cache():
        return _made(ready, rounds)


def _made(ready: Ready, rounds: int) -> Together:
    start = time.perf_counter()
    state = jax.block_until_ready(ready.init(jax.random.key(0)))
    seconds = time.perf_counter() - start
    program = measure.compile_program(ready, state, rounds)
    return Together(state, program, seconds)


def alone(ready: Ready, rounds: int) -> list[Alone]:
    """The groups one by one, compiled, after a round; none where all are equal."""
    if ready.setting.groups is None:
        return []
    groups = []
    for part in parts(ready):
        state = part.init(jax.random.key(0))
        program = measure.compile_program(part, state, rounds)
        state, _ = measure.warm_up(program, part, state)
        groups.append(Alone(part, program, state))
    return groups


def sample(groups: list[Alone], rounds: int) -> tuple[list[Alone], list[float]]:
    """The groups after `rounds` more rounds each, and the seconds that each took."""
    after = []
    seconds = []
    for group in groups:
        state, taken = measure.sample(group.program, group.ready, group.state, rounds)
        after.append(group._replace(state=state))
        seconds.append(taken.seconds)
    return after, seconds


def figures(
    ready: Ready,
    made: Together,
    samples: list[Sample],
    apart: list[list[float]],
    rounds: int,
) -> Result:
    """What the bench tells of groups; nothing where there are none.

    `apart` has the seconds of each group alone after each of `samples`.
    """
    if not apart:
        return {}
    sums = [sum(seconds) for seconds in apart]
    # Pair by pair: what the machine does beside slows both of a pair.
    ratios = [
        taken.seconds / seconds for taken, seconds in zip(samples, sums, strict=True)
    ]
    by_group = [
        spread([seconds / rounds for seconds in of_group])
        for of_group in zip(*apart, strict=True)
    ]
    return {
        "groups": {
            "architectures": ready.workload.architectures,
            "alone_seconds_per_round": by_group,
            "sum_seconds_per_round": spread([seconds / rounds for seconds in sums]),
            "ratio": spread(ratios),
            "first_state_seconds": made.first_state_seconds,
            "device_bytes": memory.needed_bytes(made.program.run),
        }
    }
