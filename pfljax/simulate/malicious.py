"""Finds the malicious clients of a run, by its channel or by their labels."""

import jax
import numpy as np

from pfljax.channel import Channel
from pfljax.core import malicious
from pfljax.core.types import Key
from pfljax.data import Federation
from pfljax.data.label_noise import label_noise

BENIGN, MALICIOUS = "benign", "malicious"  # groups of clients, in records


def poisoned_share(federation: Federation) -> float:
    """The share of the clients whose labels are poisoned."""
    noise = federation.manifest.get("noise", "none")
    try:
        turns = label_noise(str(noise), federation.num_classes)
    except ValueError:  # one that this version does not know, or of a single class
        return 0.0
    return 0.0 if turns is None else turns.attackers or 0.0


def malicious_share(channel: Channel | None, federation: Federation) -> float:
    """The share of the clients that is malicious.

    Raises:
      ValueError: labels and channel have different shares.
    """
    sending = 0.0 if channel is None else channel.attackers
    poisoned = poisoned_share(federation)
    if sending and poisoned and sending != poisoned:
        raise ValueError(
            f"attackers is {sending} in the channel and {poisoned} in noise; give one "
            "share: the same clients are malicious in both"
        )
    return max(sending, poisoned)


def which(
    channel: Channel | None, federation: Federation, key: Key
) -> np.ndarray | None:
    """Whether each client is malicious, bool[C]; None if all clients are benign."""
    share = malicious_share(channel, federation)
    if not share:
        return None
    # The compiled rounds draw the same clients from the key of the run.
    key = jax.device_put(key, jax.local_devices()[0])
    return np.asarray(malicious.draw(key, federation.num_clients, share))


def groups(is_malicious: np.ndarray | None) -> dict[str, np.ndarray]:
    """The indices of benign and malicious clients; {} if all clients are benign."""
    if is_malicious is None:
        return {}
    return {
        BENIGN: np.flatnonzero(~is_malicious),
        MALICIOUS: np.flatnonzero(is_malicious),
    }
