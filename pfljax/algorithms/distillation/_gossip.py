"""Who hears whom without a server, and what they mix by.

A graph is a function of client numbers; a round has the edges between those who take
part. Of four clients in a ring, where client 2 is absent:

    edges   0-1  0-3          degrees   2 1 - 1
    W       1/3  1/3   0  1/3          each edge weighs 1 / (1 + the larger degree),
            1/3  2/3   0   0           and what is left stays with the client;
             0    0    1   0           rows and columns sum to 1, so mixing keeps
            1/3   0    0  2/3          the sum over all clients

Metropolis weights: Xiao, Boyd, Lall, IPSN 2005.
"""

import jax.numpy as jnp

from pfljax.core.types import Array, Cohort


def complete(one: Array, other: Array, num_clients: int) -> Array:
    """Whether two clients hear each other where all do, bool[...]."""
    return one != other


def ring(one: Array, other: Array, num_clients: int) -> Array:
    """Whether two clients are neighbours in the order of their numbers, bool[...]."""
    apart = (one - other) % num_clients
    return (one != other) & ((apart == 1) | (apart == num_clients - 1))


GRAPHS = {"complete": complete, "ring": ring}


def edges(graph: str, cohort: Cohort) -> Array:
    """1 between neighbours who both report, f32[M, M]."""
    present = cohort.mask > 0
    both = present[:, None] & present
    near = GRAPHS[graph](cohort.ids[:, None], cohort.ids, cohort.num_clients)
    return (both & near).astype(jnp.float32)


def metropolis(edges: Array) -> Array:
    """Doubly stochastic weights of a graph, f32[M, M]; 1 to itself without an edge."""
    degree = edges.sum(1)
    weight = edges / (1 + jnp.maximum(degree[:, None], degree))
    return weight + jnp.diag(1 - weight.sum(1))
