"""Models on a simplex of M vertices, and the points of clients on it.

Some leaves of a simplex have a value for each vertex, [M, ...]; all vertices share the
other leaves. A point alpha, M weights whose sum is 1, is the model of the weighted
sums. Clients are placed by their principal components, as in Floco (Grinwald et al.,
2024, https://arxiv.org/abs/2403.03333).
"""

from typing import Any

import jax
import jax.numpy as jnp
from optax.projections import projection_simplex

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms._affinity import Models
from pfljax.algorithms._models import draw_models
from pfljax.core import tree
from pfljax.core.types import Array, Key, Params, Task

SCALES = 1000  # tried evenly from LEAST to 1
LEAST = 1e-4  # also of the distance of two clients, whose energy is infinite at 0


def in_simplex(task: Task) -> Any:
    """True at the leaves that differ between vertices: the head's, without biases."""

    def differs(path: Any, group: str) -> bool:
        name = jax.tree_util.keystr(path[-1:], simple=True)
        return group == "head" and name != "bias"

    return jax.tree_util.tree_map_with_path(differs, task.groups)


def first(task: Task, params: Params, count: int, key: Key) -> Params:
    """A simplex whose first vertex is `params`; the others have their own seeds."""
    vertices = draw_models(task, params, count, key)
    _, shared = tree.split(params, in_simplex(task))
    return tree.merge(vertex_leaves(task, vertices), shared)


def point(task: Task, simplex: Params, alpha: Array | None = None) -> Params:
    """The model at `alpha` f32[M], or at the centre."""
    inside, shared = tree.split(simplex, in_simplex(task))
    if alpha is None:
        alpha = centre(jax.tree.leaves(inside)[0].shape[0])

    def on_leaf(leaf: Array) -> Array:
        # An accelerator's default would round weights and vertices to a few bits.
        return jnp.tensordot(alpha, leaf, 1, precision="highest")

    return tree.merge(jax.tree.map(on_leaf, inside), shared)


def vertex_leaves(task: Task, simplex: Params) -> Params:
    """The leaves that differ between vertices; None elsewhere."""
    inside, _ = tree.split(simplex, in_simplex(task))
    return inside


def centre(count: int) -> Array:
    """The point of equal weights, f32[M]."""
    return jnp.full(count, 1 / count, jnp.float32)


def draw(key: Key, count: int) -> Array:
    """A point drawn uniformly from the simplex, f32[M]."""
    parts = jax.random.exponential(key, (count,))
    return parts / parts.sum()


def draw_near(key: Key, beta: Array, radius: Any) -> Array:
    """A point at the L1 distance U(0, radius) from `beta`, towards a point of `draw`.

    If that point is nearer, it is taken itself: points never leave the simplex.
    """
    direction = draw(key, len(beta)) - beta
    length = jnp.abs(direction).sum()
    # Not the key itself, which has drawn the direction.
    distance = radius * jax.random.uniform(jax.random.fold_in(key, 1))
    share = jnp.minimum(1, distance / jnp.maximum(length, LEAST * LEAST))
    return beta + share * direction


def draw_for(placed: Array, key: Key, beta: Array, radius: Any) -> Array:
    """A point near beta if the client is placed, else any point, f32[M]."""
    near = draw_near(key, beta, radius)
    return jnp.where(placed, near, draw(key, len(beta)))


def place_clients(updates: Models, count: int) -> Array:
    """The point of each client, f32[C, M]: of least energy for those that have sent.

    A client that has sent nothing is at the centre.
    """
    known = updates.heard

    def products(client: Array) -> Array:
        model = tree.take(updates.params, client)
        return affinity.inner_products(updates.params, model)

    gram = affinity.matrix(products, len(known))
    scores = principal_scores(gram, known, count)
    pairs = jnp.triu(known[:, None] * known, 1)

    def points_at(z: Array) -> Array:
        return project(scores, z)

    scales = jnp.linspace(LEAST, 1, SCALES)
    touching, apart = jax.lax.map(lambda z: energy(points_at(z), pairs), scales)
    # Their sum; a single touching pair would leave no digits to the other pairs.
    energies = (touching - touching.min()) / LEAST**2 + apart
    return points_at(scales[jnp.argmin(energies)])


def principal_scores(gram: Array, known: Array, count: int) -> Array:
    """Scores of the first principal components, f32[C, count], from inner products.

    In each component the score of largest magnitude is positive. Clients that are not
    `known` f32[C] have scores 0, and so have components beyond the rank.
    """
    share = known / jnp.maximum(known.sum(), 1)
    centring = jnp.diag(known) - known[:, None] * share
    centred = centring @ gram @ centring.T
    values, vectors = jnp.linalg.eigh(centred)
    # Rounding leaves a little of what is 0.
    least = len(gram) * jnp.finfo(gram.dtype).eps * values[-1]
    values = jnp.where(values > least, values, 0)
    scores = vectors * jnp.sqrt(values)
    # The largest eigenvalues are last.
    scores = scores[:, ::-1][:, :count]
    missing = max(count - len(gram), 0)
    scores = jnp.pad(scores, ((0, 0), (0, missing)))
    greatest = jnp.argmax(jnp.abs(scores), axis=0)
    sign = jnp.take_along_axis(scores, greatest[None], 0)
    return scores * jnp.where(sign < 0, -1, 1)


def project(scores: Array, z: Array) -> Array:
    """The nearest points of {beta >= 0, sum beta = z}, over their sums, f32[C, M]."""
    points = jax.vmap(lambda score: projection_simplex(score, z))(scores)
    return points / points.sum(1, keepdims=True)


def energy(points: Array, pairs: Array) -> tuple[Array, Array]:
    """The sum of 1 / distance^2 over pairs f32[C, C] of points, in two parts, f32[].

    The first part is the number of pairs whose distance is at most `LEAST`, which count
    as that far apart. The second is the sum over the others.
    """
    square = jnp.sum((points[:, None] - points) ** 2, -1)
    touching = square <= LEAST**2
    apart = jnp.where(touching, 0, pairs / jnp.where(touching, 1, square))
    return jnp.sum(pairs * touching), jnp.sum(apart)
