"""The Hessian of a client's mean loss: outermost eigenpairs, trace, spectral density.

Everything is computed from exact products with the Hessian over all examples; the
matrix is never formed. If `data` has an axis of C clients, so has every result,
[C, ...], with NaN for a client without examples. Each client has random vectors of its
own, so that the mean of their estimates has a smaller error than each. Running
statistics are no parameters: they have no curvature.

For models with ReLU or maxima the Hessian is that of the smooth piece in which the
model lies. The pieces of a CNN can be narrow: a random step of 1e-3 leaves them. What
the kinks add to the rise of the loss is seen in planes and `sharpness`, not here.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.types import Array, ClientData, Key, Params, Task
from pfljax.landscape.lanczos import lanczos
from pfljax.landscape.layers import find_layers
from pfljax.landscape.objective import Objective, measure, num_parameters
from pfljax.landscape.stacked import check_whole

POINTS = 1000  # of the grid of a density


class Eigen(NamedTuple):
    """The greatest eigenvalues of a Hessian and its smallest, the greatest first."""

    values: np.ndarray  # f32[..., k], k = top + bottom
    vectors: Params  # leaves [..., k, *shape]: norm 1 over all leaves, any sign
    residuals: np.ndarray  # f32[..., k], |H v - value v|: an eigenvalue is that near


class Trace(NamedTuple):
    """The trace of a Hessian, and the standard error of the estimate."""

    value: np.ndarray  # f32[...]
    error: np.ndarray  # f32[...]
    layers: dict[str, "Trace"] | None = None  # of each layer's block of the Hessian


class Density(NamedTuple):
    """The density of a Hessian's eigenvalues; it integrates to 1."""

    grid: np.ndarray  # f64[G], eigenvalues, the same for all clients
    density: np.ndarray  # f64[..., G]
    nodes: np.ndarray  # f32[..., P, m], eigenvalues of the P Lanczos matrices
    weights: np.ndarray  # f32[..., P, m], sum to 1 over m


def eigen(
    task: Task,
    params: Params,
    data: ClientData,
    key: Key,
    *,
    top: int = 2,
    bottom: int = 0,
    layer: str | None = None,
    steps: int | None = None,
    batch_size: int = 256,
) -> Eigen:
    """The outermost eigenvalues and their eigenvectors by Lanczos' algorithm.

    They are the greatest and smallest by value, not by magnitude. More steps reduce
    `residuals`.

    Args:
      task: the model.
      params: one model, or stacked over C clients.
      data: the examples of one client, or of C clients.
      key: for the first vector.
      top: number of eigenpairs with the greatest values.
      bottom: number of those with the smallest, which stand last.
      layer: the start of the paths of a layer's leaves, as `find_layers` names it; then
        they are those of its block of the Hessian, and vectors are 0 elsewhere.
      steps: products with the Hessian, from `top` + `bottom` to the number of
        parameters; None is 20, or that number if it is smaller. Memory holds as many
        vectors of parameters for each client at a time.
      batch_size: examples at a time; the result does not depend on it.

    Raises:
      ValueError: a number is out of range, or the shapes do not agree.
    """
    check_whole("top", top, 1)
    check_whole("bottom", bottom, 0)
    most = num_parameters(task, layer)
    steps = _choose_steps(most, steps, 20, top + bottom)
    counts = (top, bottom, steps)
    found = measure(_eigen, task, params, data, key, counts, batch_size, layer=layer)
    return Eigen(**found)


def _eigen(
    objective: Objective, key: Key, top: int, bottom: int, steps: int
) -> dict[str, Any]:
    # Gaussian, so that almost surely no eigenvector is missing from it.
    start = jax.random.normal(key, objective.weights.shape)
    tridiagonal, basis, beyond = lanczos(objective.curvature, start, steps, key)
    values, vectors = jnp.linalg.eigh(tridiagonal)
    # `eigh` ascends: the greatest are the last columns.
    chosen = np.r_[steps - 1 : steps - 1 - top : -1, bottom - 1 : -1 : -1]
    leading = vectors[:, chosen].T
    ritz = leading @ basis
    ritz /= jnp.linalg.norm(ritz, axis=1, keepdims=True)
    return {
        "values": values[chosen],
        "vectors": jax.vmap(objective.unravel)(ritz),
        "residuals": jnp.abs(beyond * leading[:, -1]),
    }


def _choose_steps(most: int, steps: int | None, default: int, least: int) -> int:
    """The steps of Lanczos' algorithm, at most one for each of `most` parameters."""
    if steps is None:
        steps = min(default, most)
    check_whole("steps", steps, least, most)
    return steps


def trace(
    task: Task,
    params: Params,
    data: ClientData,
    key: Key,
    *,
    probes: int = 64,
    batch_size: int = 256,
) -> Trace:
    """The trace by Hutchinson's estimator: the mean of v'Hv over random signs v.

    Hutchinson, Commun. Stat. Simul. Comput. 19(2), 1990. `probes`, 2 or more, is the
    number of vectors v; the other arguments are those of `eigen`. The sum of v_i (Hv)_i
    over a layer's parameters i has the mean of its block's trace, so that the same
    probes serve all layers, and the layers add up to the trace.
    """
    check_whole("probes", probes, 2)
    by_leaf = measure(_products, task, params, data, key, (probes,), batch_size)
    layers = {}
    for name, mask in find_layers(task).items():
        # Statistics have no leaf there: they are no parameters.
        chosen = np.array(jax.tree.leaves(tree.parameters(mask)), bool)
        layers[name] = _average(by_leaf[..., chosen].sum(-1))
    return _average(by_leaf.sum(-1))._replace(layers=layers)


def _products(objective: Objective, key: Key, probes: int) -> Array:
    """v_i (Hv)_i summed over each leaf of the parameters, f32[P, leaves]."""

    def by_leaf(key: Key) -> Array:
        v = jax.random.rademacher(key, objective.weights.shape, jnp.float32)
        products = objective.unravel(v * objective.curvature(v))
        leaves = jax.tree.leaves(tree.parameters(products))
        return jnp.stack([leaf.sum() for leaf in leaves])

    # One probe at a time: memory holds one product, and the order of sums is fixed.
    return jax.lax.map(by_leaf, jax.random.split(key, probes))


def _average(forms: np.ndarray) -> Trace:
    """The mean of estimates [..., P], and its standard error."""
    error = forms.std(-1, ddof=1) / np.sqrt(forms.shape[-1])
    return Trace(value=forms.mean(-1), error=error)


def density(
    task: Task,
    params: Params,
    data: ClientData,
    key: Key,
    *,
    probes: int = 8,
    steps: int | None = None,
    sigma: float | None = None,
    batch_size: int = 256,
) -> Density:
    """The density of the eigenvalues by stochastic Lanczos quadrature.

    Each of `probes` vectors of random signs gives the nodes and weights of a
    quadrature. Their mean is smoothed by Gaussians of deviation `sigma`, in units of
    eigenvalues; None is 1/100 of the span of all nodes. Ghorbani, Krishnan and Xiao,
    ICML 2019, https://arxiv.org/abs/1901.10159 (Section 2). If `steps` is None it is
    40, or the number of parameters if that is smaller. The other arguments are those of
    `eigen`.
    """
    check_whole("probes", probes, 1)
    steps = _choose_steps(num_parameters(task), steps, 40, 1)
    if sigma is not None and not sigma > 0:
        raise ValueError(f"sigma is {sigma}, expected a positive number, or None")
    counts = (probes, steps)
    nodes, weights = measure(_quadrature, task, params, data, key, counts, batch_size)
    grid, values = smooth(nodes, weights, sigma)
    return Density(grid=grid, density=values, nodes=nodes, weights=weights)


def _quadrature(
    objective: Objective,
    key: Key,
    probes: int,
    steps: int,
) -> tuple[Array, Array]:
    """Nodes and weights, f32[P, m], of v'f(H)v / v'v for each probe."""

    def quadrature(key: Key) -> tuple[Array, Array]:
        v = jax.random.rademacher(key, objective.weights.shape, jnp.float32)
        tridiagonal, *_ = lanczos(objective.curvature, v, steps, key)
        nodes, vectors = jnp.linalg.eigh(tridiagonal)
        # Golub and Welsch: the weight of a node is its vector's first entry, squared.
        weights = vectors[0] ** 2
        return nodes, weights

    return jax.lax.map(quadrature, jax.random.split(key, probes))


def smooth(
    nodes: np.ndarray,
    weights: np.ndarray,
    sigma: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(grid [G], density [..., G]) of nodes and weights [..., P, m].

    The grid ends 5 deviations beyond the outermost nodes.
    """
    finite = nodes[np.isfinite(nodes)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    # The last is for a spectrum of a single point, whose bell needs some width.
    width = sigma or (high - low) / 100 or 1e-3 * max(abs(high), 1e-3)
    grid = np.linspace(low - 5 * width, high + 5 * width, POINTS)
    clients = nodes.shape[:-2]
    density = np.zeros((*clients, POINTS))
    flat_nodes = nodes.reshape(*clients, -1)
    flat_weights = weights.reshape(*clients, -1)
    # One node of every client at a time: all bells at once would fill the memory.
    for i in range(flat_nodes.shape[-1]):
        distance = grid - flat_nodes[..., i, None]
        bell = np.exp(-(distance**2) / (2 * width**2))
        density += flat_weights[..., i, None] * bell
    probes = nodes.shape[-2]
    return grid, density / (probes * np.sqrt(2 * np.pi) * width)
