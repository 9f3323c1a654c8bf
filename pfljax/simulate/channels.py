"""Makes the channel of a run from its settings, method and clients."""

import math
from typing import Any

import numpy as np

from pfljax import channel
from pfljax.channel import Channel
from pfljax.core import malicious
from pfljax.core.communication import trace_exchanges
from pfljax.core.requirements import require
from pfljax.core.types import Algorithm, Task
from pfljax.engine import Setting
from pfljax.runs.settings import Experiment
from pfljax.simulate import privacy
from pfljax.simulate.shape import Shape

NEED_COUNT = ("krum", "trimmed_mean")  # with a condition on the number of uploads


def make_channel(experiment: Experiment, num_clients: int) -> Channel | None:
    """The channel of the settings; None if uploads arrive unchanged.

    Raises:
      ValueError: two channels exclude each other, or no client would be malicious.
    """
    through = channel.make([*experiment.channel, *experiment.aggregation])
    if through is not None:
        malicious.count(num_clients, through.attackers)
    for choice in experiment.aggregation:
        if choice.name == "krum":
            _check_krum(choice.options, experiment.cohort)
        if choice.name == "trimmed_mean":
            _check_trim(choice.options, experiment.cohort)
    return through


def check(experiment: Experiment, setting: Setting) -> None:
    """Refuses a channel that does not fit the cohorts of the run."""
    _check_noise(experiment, setting)
    _check_stacks(experiment, setting)


def _check_stacks(experiment: Experiment, setting: Setting) -> None:
    """Refuses Krum and trimmed means of a random number of uploads."""
    if setting.groups is None or setting.algorithm.architecture is None:
        return
    for choice in experiment.aggregation:
        if choice.name in NEED_COUNT:
            raise ValueError(
                f"aggregation {choice.name!r} needs a known number of uploads, but "
                f"{experiment.algorithm.name} aggregates each architecture by itself, "
                "and a cohort has a random number of each; choose another, such as "
                "median"
            )


def _check_noise(experiment: Experiment, setting: Setting) -> None:
    """Refuses noise at the server if a client changes the number by which it divides.

    That number, and the choice of the other clients, must not depend on a client's
    examples: the noise hides what it adds to the sum, and nothing else. Lost uploads
    and stragglers are no such case, since the server divides by the clients that it
    asked (`channel.private`).
    """
    if privacy.find_mechanism(experiment.channel) is None:
        return
    chosen, clock = experiment.selection.name, setting.clock
    reason = ""
    if chosen not in privacy.SELECTIONS:
        reason = f"selection {chosen!r} does not ensure this"
    elif setting.groups is not None:
        reason = "a cohort has a random number of clients of each architecture"
    elif clock is not None and np.any(np.asarray(clock.profile.availability) < 1):
        reason = f"devices of the profile {str(experiment.profile)!r} may be absent"
    if reason:
        raise ValueError(
            "noise at the server needs a cohort whose size and members do not depend "
            f"on a client's examples, but {reason}; choose selection 'uniform' or "
            "'round_robin', one model, and devices that are always available, or leave "
            "out the noise"
        )


def _check_krum(options: dict[str, Any], cohort: int) -> None:
    """Refuses a cohort that is too small for Krum's guarantee."""
    byzantine = options.get("byzantine", 1)
    needed = 2 * byzantine + 3
    expected = f"at least 2 * byzantine + 3 = {needed} for aggregation 'krum'"
    require("cohort", cohort, cohort >= needed, expected)
    chosen = options.get("chosen", 1)
    benign = cohort - byzantine
    expected = f"at most cohort - byzantine = {benign}"
    require("chosen of aggregation 'krum'", chosen, chosen <= benign, expected)


def _check_trim(options: dict[str, Any], cohort: int) -> None:
    """Refuses a share of less than one client, which would be the plain mean."""
    trim = options.get("trim", 0.1)
    has_any = not trim or math.floor(trim * cohort) > 0
    expected = f"0, or at least 1 / cohort, here 1 / {cohort}"
    require("trim of aggregation 'trimmed_mean'", trim, has_any, expected)


def with_memory(
    through: Channel | None,
    algorithm: Algorithm,
    task: Task,
    shape: Shape,
) -> Algorithm:
    """The method, whose client states also hold the memory of the channel."""
    if through is None or through.memory is None:
        return algorithm
    exchanges = trace_exchanges(algorithm, task, shape.num_clients, shape.input_shape)
    return channel.add_memory(through, algorithm, exchanges)


def with_shapes(
    through: Channel | None,
    algorithm: Algorithm,
    task: Task,
    shape: Shape,
) -> Channel | None:
    """The channel, whose state may have the shapes of the method's uploads."""
    if through is None or not (through.shaped or through.arrives):
        return through
    exchanges = trace_exchanges(algorithm, task, shape.num_clients, shape.input_shape)
    return channel.set_shapes(through, exchanges)
