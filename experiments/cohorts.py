"""How many clients took part in a run, from its settings: nothing is trained or read.

A cohort depends on seed, round, cohort size and number of clients alone, where it is
drawn uniformly. Clients that never took part are judged by the server's model.
"""

import functools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from pfljax import config, engine, selection
from pfljax.algorithms.superfed import first_mixed
from pfljax.config import Experiment
from pfljax.types import Array


def took_part(experiment: Experiment, seeds: Iterable[int]) -> dict[str, float]:
    """Fields of `beside.Cell`, means over the seeds: by the last round, since mixing.

    None of natural clients, whose number only the data tell.
    """
    e = config.resolve(experiment)
    if e.clients is None:
        return {}
    seeds = [*seeds]
    whole = np.array([drawn(e.cohort, e.clients, s, e.rounds) for s in seeds])
    found = {"clients": e.clients, "took_part": (whole > 0).sum(1).mean()}
    if e.algorithm == "superfed":
        start = int(first_mixed(dict(e.hyper)["start"], e.rounds))
        before = np.array([drawn(e.cohort, e.clients, s, start) for s in seeds])
        found["mixed"] = (whole > before).sum(1).mean()
    return {name: float(value) for name, value in found.items()}


@functools.partial(jax.jit, static_argnums=(0, 1))
def drawn(cohort: int, clients: int, seed: Any, rounds: Any) -> Array:
    """How often each client was drawn in the first rounds of this seed, i32[C]."""
    unused: Any = None
    setting = engine.Setting(unused, unused, selection.uniform(cohort, clients))
    return engine.participations(setting, jax.random.key(seed), rounds, clients)
