"""Malicious clients that see the uploads of the others, and forge theirs from them.

They act at the server, before its reducers, and so forge their uploads from those of
honest clients as they arrive, for example compressed.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.channel.attacks import OFF, draw_attackers
from pfljax.channel.base import Channel, with_change, with_origin
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.malicious import Attackers
from pfljax.core.ranges import Positive
from pfljax.core.types import Array, Cohort, Key, Upload

Forge = Callable[[Any, Array, Array], Any]  # (changes, honest f32[M], forging f32[M])


def colluding(share: float, forge: Forge) -> Channel:
    """A channel in which each malicious client's change is forge(...), one for all."""
    if not share:
        return OFF

    def receive(
        is_malicious: Any, key: Key, uploads: Upload, starts: Any, cohort: Cohort
    ) -> tuple[Upload, Any]:
        # An empty slot has the id C, past the end.
        here = is_malicious.at[cohort.ids].get(mode="fill", fill_value=False)
        present = cohort.mask > 0
        honest = (present & ~here).astype(jnp.float32)
        forging = (present & here).astype(jnp.float32)

        def forge_change(changes: Any) -> Any:
            change = forge(changes, honest, forging)
            return aggregation.repeat(change, changes)

        theirs = with_change(starts, uploads, forge_change)
        # Without an honest client there is no upload to forge from.
        replaced = (forging > 0) & (honest.sum() > 0)
        return tree.where_each(replaced, theirs, uploads), is_malicious

    return OFF._replace(
        init=draw_attackers(share), send=with_origin, receive=receive, attackers=share
    )


@component
def alie(*, attackers: Attackers = 0.2, z: Positive | None = None) -> Channel:
    """ "A little is enough": malicious clients send mean - z * std of honest changes.

    Baruch et al., NeurIPS 2019, https://arxiv.org/abs/1902.06156, Algorithm 3, for each
    coordinate. The paper's z is the largest at which enough honest clients lie farther
    from the mean to make a majority with the malicious ones.

    Args:
      attackers: share of all clients that are malicious.
      z: standard deviations from the mean; None for that of the paper.
    """

    def forge(changes: Any, honest: Array, forging: Array) -> Any:
        far = largest_z(honest.sum(), forging.sum()) if z is None else z
        mean = aggregation.mean(changes, honest)
        square = jax.tree.map(lambda leaf, mean: (leaf - mean) ** 2, changes, mean)
        variance = aggregation.mean(square, honest)
        return jax.tree.map(
            lambda mean, variance: mean - far * jnp.sqrt(variance), mean, variance
        )

    return colluding(attackers, forge)


def largest_z(honest: Array, forging: Array) -> Array:
    """z with Phi(z) = (n - m - s) / (n - m), s = floor(n / 2 + 1) - m, f32[].

    m of n clients forge. z is 0 if they are a majority.
    """
    supporters = jnp.floor((honest + forging) / 2 + 1) - forging
    share = (honest - supporters) / jnp.maximum(honest, 1)
    z = jax.scipy.stats.norm.ppf(jnp.clip(share, 0.5, 1 - 1e-6))
    return jnp.maximum(z, 0)


@component
def ipm(*, attackers: Attackers = 0.2, scale: Positive = 0.5) -> Channel:
    """Malicious clients send -`scale` times the mean of the honest changes.

    Inner product manipulation: Xie et al., UAI 2020, https://arxiv.org/abs/1903.03936.

    Args:
      attackers: share of all clients that are malicious.
      scale: factor of what they send.
    """

    def forge(changes: Any, honest: Array, forging: Array) -> Any:
        return tree.scale(aggregation.mean(changes, honest), -scale)

    return colluding(attackers, forge)
