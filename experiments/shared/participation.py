"""The number of clients that took part in a run, from its settings alone.

Nothing is trained or read. A uniformly drawn cohort depends only on the seed, the
round, the cohort size and the number of clients. Clients that never took part are
evaluated with the server's model.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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

    def sentence(self) -> str:
        """In words; nothing where the number of clients is not known."""
        if np.isnan(self.clients):
            return ""
        mixed = "" if np.isnan(self.mixed) else f", {self.mixed:.4g} since mixing"
        return f"{self.took_part:.4g} of {self.clients:.0f}{mixed}"


def took_part(experiment: Experiment, seeds: Sequence[int]) -> Part:
    """Who took part in the runs of these seeds; unknown of natural clients.

    How many of these there are is known from their data alone.
    """
    settings = checks.resolve(experiment)
    clients = settings.clients
    if clients is None:
        return Part()
    rounds = settings.rounds
    draws = _draws(settings, seeds, rounds)
    participants = (draws > 0).sum(1)
    part = Part(clients=float(clients), took_part=float(participants.mean()))
    if not settings.algorithm.short_name.startswith("superfed"):
        return part
    start = int(first_mixed(settings.algorithm.options["start"], rounds))
    # Drawn more often at the end than when mixing began: drawn since.
    since = draws > _draws(settings, seeds, start)
    return part._replace(mixed=float(since.sum(1).mean()))


def _draws(settings: Any, seeds: Sequence[int], rounds: int) -> np.ndarray:
    """How often each client was drawn in the first rounds, i32[seeds, C]."""
    cohort = settings.cohort
    clients = settings.clients
    return np.array([drawn(cohort, clients, seed, rounds) for seed in seeds])


@functools.partial(jax.jit, static_argnums=(0, 1))
def drawn(cohort: int, clients: int, seed: Any, rounds: Any) -> Array:
    """How often each client was drawn in the first rounds of this seed, i32[C]."""
    # Nothing trains: the draw looks at the selection alone.
    unused: Any = None
    setting = engine.Setting(
        algorithm=unused,
        local=unused,
        selection=selection.uniform(cohort, clients),
    )
    key = jax.random.key(seed)

    def count(round_: Array, total: Array) -> Array:
        return total.at[engine.draw(setting, (), key, round_)].add(1)

    return jax.lax.fori_loop(0, rounds, count, jnp.zeros(clients, jnp.int32))
