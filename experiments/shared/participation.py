"""How many clients took part in a run, from its settings: nothing is trained or read.

A cohort depends on seed, round, cohort size and number of clients alone, where it is
drawn uniformly. Clients that never took part are judged by the server's model.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax import engine, selection
from pfljax.algorithms.interpolation.superfed import first_mixed
from pfljax.core.types import Array
from pfljax.runs import checks
from pfljax.runs.settings import Experiment


class Part(NamedTuple):
    """How many clients took part: means over the seeds; NaN where not known."""

    clients: float = np.nan  # there are
    took_part: float = np.nan  # of them, by the last round
    mixed: float = np.nan  # of them, since mixing began; NaN of other methods

    def told(self) -> str:
        """In words; nothing where the number of clients is not known."""
        if np.isnan(self.clients):
            return ""
        mixed = "" if np.isnan(self.mixed) else f", {self.mixed:.4g} since mixing"
        return f"{self.took_part:.4g} of {self.clients:.0f}{mixed}"


def took_part(experiment: Experiment, seeds: Iterable[int]) -> Part:
    """Who took part in the runs of these seeds; of natural clients only data tell."""
    e = checks.resolve(experiment)
    if e.data.clients is None:
        return Part()
    seeds = [*seeds]
    whole = np.array(
        [
            drawn(e.participation.cohort, e.data.clients, s, e.participation.rounds)
            for s in seeds
        ]
    )
    found = Part(float(e.data.clients), float((whole > 0).sum(1).mean()))
    if e.method.algorithm != "superfed":
        return found
    start = int(first_mixed(dict(e.method.hyper)["start"], e.participation.rounds))
    before = np.array(
        [drawn(e.participation.cohort, e.data.clients, s, start) for s in seeds]
    )
    return found._replace(mixed=float((whole > before).sum(1).mean()))


@functools.partial(jax.jit, static_argnums=(0, 1))
def drawn(cohort: int, clients: int, seed: Any, rounds: Any) -> Array:
    """How often each client was drawn in the first rounds of this seed, i32[C]."""
    unused: Any = None
    setting = engine.Setting(unused, unused, selection.uniform(cohort, clients))
    return engine.participations(setting, jax.random.key(seed), rounds, clients)
