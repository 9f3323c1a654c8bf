"""Attacks: malicious clients that send something else than their changes.

A fixed share of the clients is malicious in a run (`pfljax.core.malicious`); the state
of the channel has these clients. Whatever clients do to their uploads, such as
clipping, comes after the attack, which cannot avoid it.

Attacks of Li et al. (Ditto), ICML 2021, https://arxiv.org/abs/2012.04221, section 4.1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.channel.base import NONE, Channel, Sender, Sent, Start, with_change
from pfljax.core import malicious, tree
from pfljax.core.factories import component
from pfljax.core.keys import map_with_keys
from pfljax.core.malicious import Attackers
from pfljax.core.ranges import Positive
from pfljax.core.types import Array, Key, Origin, Upload

OFF = NONE._replace(stage="attack")  # nobody is malicious


def draw_attackers(share: float) -> Callable[[Start], Array]:
    """The state of an attack: whether each client is malicious, bool[C]."""

    def init(start: Start) -> Array:
        return malicious.draw(start.key, start.num_clients, share)

    return init


def attacking(share: float, attack: Callable[[Sender, Any], Any]) -> Channel:
    """A channel in which malicious clients send attack(sender, change)."""
    if not share:
        return OFF

    def send(
        is_malicious: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        forged = with_change(origin, upload, lambda change: attack(sender, change))
        sent = tree.where(is_malicious[sender.id], forged, upload)
        return Sent(sent, memory)

    return OFF._replace(init=draw_attackers(share), send=send, attackers=share)


@component
def sign_flip(*, attackers: Attackers = 0.2, scale: Positive = 1.0) -> Channel:
    """Malicious clients send -`scale` times their change.

    Args:
      attackers: share of all clients that are malicious.
      scale: factor of what they send.
    """
    return attacking(attackers, lambda sender, change: tree.scale(change, -scale))


@component
def random_update(*, attackers: Attackers = 0.2, scale: Positive = 1.0) -> Channel:
    """Malicious clients send noise with `scale` times the std of their change.

    Args:
      attackers: share of all clients that are malicious.
      scale: factor of the noise.
    """

    def attack(sender: Sender, change: Any) -> Any:
        leaves = jax.tree.leaves(change)
        if not leaves:
            return change
        deviation = jnp.concatenate([leaf.ravel() for leaf in leaves]).std()

        def draw(key: Key, leaf: Array) -> Array:
            return scale * deviation * jax.random.normal(key, leaf.shape, leaf.dtype)

        return map_with_keys(draw, sender.key, change)

    return attacking(attackers, attack)


@component
def model_replacement(
    *, attackers: Attackers = 0.2, boost: Positive | None = None
) -> Channel:
    """Malicious clients multiply their change by `boost`.

    With the size of the cohort as `boost`, one malicious client of average weight
    replaces the server's model by about its own, if the other changes nearly cancel
    (Bagdasaryan et al., AISTATS 2020, https://arxiv.org/abs/1807.00459). Combine it
    with the noise "poison", so that the same clients train on wrong labels.

    Args:
      attackers: share of all clients that are malicious.
      boost: factor of their changes; None for the size of the cohort.
    """

    def attack(sender: Sender, change: Any) -> Any:
        return tree.scale(change, sender.asked if boost is None else boost)

    return attacking(attackers, attack)
