"""Communication graphs without a server, and the weights of their edges.

A graph is a function of client ids. A round has the edges between the clients that take
part. For four clients in a ring, where client 2 is absent:

    edges   0-1  0-3          degrees   2 1 - 1
    W       1/3  1/3   0  1/3          an edge has the weight 1 / (1 + larger degree),
            1/3  2/3   0   0           and a client keeps the rest; rows and columns
             0    0    1   0           sum to 1, so mixing preserves the sum over all
            1/3   0    0  2/3          clients

Metropolis weights: Xiao, Boyd, Lall, IPSN 2005.
"""

import jax.numpy as jnp

from pfljax.core.types import Array, Cohort


def complete(a: Array, b: Array, num_clients: int) -> Array:
    """Whether two clients are neighbours, bool[...]: all different clients are."""
    return a != b


def ring(a: Array, b: Array, num_clients: int) -> Array:
    """Whether two clients are neighbours in the order of their ids, bool[...]."""
    apart = (a - b) % num_clients
    return (a != b) & ((apart == 1) | (apart == num_clients - 1))


GRAPHS = {"complete": complete, "ring": ring}


def edges(graph: str, cohort: Cohort) -> Array:
    """1 between neighbours that both report, f32[M, M]."""
    present = cohort.mask > 0
    both = present[:, None] & present
    near = GRAPHS[graph](cohort.ids[:, None], cohort.ids, cohort.num_clients)
    return (both & near).astype(jnp.float32)


def metropolis(edges: Array) -> Array:
    """Doubly stochastic weights of a graph, f32[M, M]; without edges the identity."""
    degree = edges.sum(1)
    weight = edges / (1 + jnp.maximum(degree[:, None], degree))
    return weight + jnp.diag(1 - weight.sum(1))
