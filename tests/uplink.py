"""Channels by hand: what leaves a client, and what the server makes of what came."""

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import channel
from pfljax.core.components import parse
from pfljax.core.types import Cohort

KEY = jax.random.key(0)
CLIENTS = 10
SENDER = channel.Sender(key=KEY, id=jnp.int32(0), asked=4)


def made(*names):
    """The channel of these texts."""
    return channel.make([parse(name) for name in names])


def state_of(chain, clients=CLIENTS, like=None):
    """The first state; that of a channel of shapes is of the change `like`."""
    start = channel.Start(KEY, clients, like, like)
    return chain.init(start)


def sent_by(chain, origin, upload, seed=0, client=0):
    """The upload as it leaves a client behind a channel that remembers nothing."""
    return leaving(chain, origin, upload, seed, client).upload


def leaving(chain, origin, upload, seed=0, client=0, memory=()):
    """Sends a client's upload: (sent upload, memory, report)."""
    sender = SENDER._replace(key=jax.random.key(seed), id=jnp.int32(client))
    state = state_of(chain, like=upload)
    return chain.send(state, sender, origin, upload, memory)


def change_of(chain, change, seed=0):
    """The change of one leaf as the server receives it, from an origin of zeros."""
    leaf = jnp.asarray(change, jnp.float32)
    sent = sent_by(chain, {"w": jnp.zeros_like(leaf)}, {"w": leaf}, seed)
    return np.asarray(sent["w"])


def cohort_of(mask, clients=CLIENTS):
    """A cohort of clients 0, 1, .. that report where the mask is 1."""
    mask = jnp.asarray(mask, jnp.float32)
    return Cohort(
        ids=jnp.arange(len(mask)),
        weight=jnp.arange(1.0, 1 + len(mask)),
        mask=mask,
        draws=jnp.ones(len(mask)),
        num_clients=clients,
        round=jnp.int32(0),
        key=KEY,
        public=None,
    )


def arrived(chain, start, changes, mask=None, state=None, seed=0):
    """(changes [M, d] behind client and server, the new state), from one origin."""
    changes = jnp.asarray(changes, jnp.float32)
    start = jnp.asarray(start, jnp.float32)
    state = state_of(chain, like={"w": start}) if state is None else state
    sent = []
    for client, change in enumerate(changes):
        sender = SENDER._replace(
            key=jax.random.fold_in(jax.random.key(seed), client), id=jnp.int32(client)
        )
        sent.append(chain.send(state, sender, {"w": start}, {"w": start + change}, ()))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *sent)
    cohort = cohort_of(np.ones(len(changes)) if mask is None else mask)
    uploads, state = chain.receive(
        state, jax.random.key(seed), stacked.upload, stacked.report, cohort
    )
    return np.asarray(uploads["w"] - start), state
