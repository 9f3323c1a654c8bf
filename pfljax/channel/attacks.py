"""What malicious clients send in place of what they changed.

A fixed share of the clients is malicious in a run (`pfljax.core.malicious`); the
channel's state says which. Whatever clients do to honest uploads, such as clipping,
comes after: an attacker of these kinds cannot avoid it.

Attacks of Li et al. (Ditto), ICML 2021, https://arxiv.org/abs/2012.04221, section 4.1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.channel.base import NONE, Channel, Sender, Sent, Start, with_change
from pfljax.core import malicious, tree
from pfljax.core.malicious import Attackers
from pfljax.core.types import Array, Origin, Upload
from pfljax.registry import Positive, component

OFF = NONE._replace(stage="attack")  # nobody is malicious


def draw_attackers(share: float) -> Callable[[Start], Array]:
    """A state that says of each client whether it is malicious, bool[C]."""

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
        leaves, structure = jax.tree.flatten(change)
        if not leaves:
            return change
        deviation = jnp.concatenate([leaf.ravel() for leaf in leaves]).std()
        noise = []
        for number, leaf in enumerate(leaves):
            leaf_key = jax.random.fold_in(sender.key, number)
            drawn = jax.random.normal(leaf_key, leaf.shape, leaf.dtype)
            noise.append(scale * deviation * drawn)
        return jax.tree.unflatten(structure, noise)

    return attacking(attackers, attack)


@component
def model_replacement(
    *, attackers: Attackers = 0.2, boost: Positive | None = None
) -> Channel:
    """Malicious clients send `boost` times their change; None is the cohort size.

    The mean of the cohort is then theirs (Bagdasaryan et al., AISTATS 2020,
    https://arxiv.org/abs/1807.00459). Meant with noise "poison", for wrong labels.

    Args:
      attackers: share of all clients that are malicious.
      boost: factor of their changes; None, the size of the cohort.
    """

    def attack(sender: Sender, change: Any) -> Any:
        return tree.scale(change, sender.asked if boost is None else boost)

    return attacking(attackers, attack)
