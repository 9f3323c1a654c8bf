"""The Hessian of a client's mean loss: leading eigenpairs, trace, spectral density.

All of it is made of exact products with the Hessian over all rows, never of the matrix.
Of `data` with an axis of C clients every result has that axis first, [C, ...], and is
NaN for a client without rows. All clients share their random vectors, so a client's
result is the same whoever else is measured.

Of models with ReLU or maxima the Hessian is that of the smooth piece that the model
lies in. A CNN's pieces can be narrow: a random step of 1e-3 leaves them, and what the
kinks add to the rise of the loss is in planes and `sharpness`, not here.

Lanczos is our own: that of matfree 0.6.3 was tried, and lost a Hessian of rank lower
than its steps (a client of 3 rows) without a warning, and was no faster.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import Array, ClientData, Key, Params, Task
from pfljax.landscape.objective import Objective, measure, size
from pfljax.landscape.stacked import at_least

POINTS = 1000  # of the grid of a density
EIGEN_STEPS, DENSITY_STEPS = 20, 40  # where a model has as many parameters


class Eigen(NamedTuple):
    """The greatest eigenvalues of a Hessian, the greatest first."""

    values: np.ndarray  # f32[..., k]
    vectors: Params  # leaves [..., k, *shape]: norm 1 over all leaves, any sign
    residuals: np.ndarray  # f32[..., k], |H v - value v|: an eigenvalue is that near


class Trace(NamedTuple):
    """The trace of a Hessian, and the standard error of the estimate."""

    value: np.ndarray  # f32[...]
    error: np.ndarray  # f32[...]


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
    steps: int | None = None,
    batch_size: int = 256,
    chunk: int | None = None,
) -> Eigen:
    """The `top` greatest eigenvalues and their eigenvectors by Lanczos' algorithm.

    Greatest, not greatest in size. More steps bring `residuals` down.

    Args:
      task: the model.
      params: one model, or stacked over C clients.
      data: one client's rows, or C clients', or `planes.pooled` ones.
      key: of the first vector.
      top: number of eigenpairs.
      steps: products with the Hessian, `top` to the number of parameters; None: 20,
        or that number if it is less. Memory: as many vectors of parameters for each
        client at once.
      batch_size: rows at once; the result does not depend on it.
      chunk: clients at once; None: 1 on a CPU, else as many as fit into memory.
    """
    at_least("top", top, 1)
    steps = min(EIGEN_STEPS, size(task)) if steps is None else steps
    at_least("steps", steps, top, size(task))
    found = measure(
        _eigen, task, params, data, key, (top, steps), batch_size=batch_size,
        chunk=chunk,
    )  # fmt: skip
    return Eigen(*found)


def _eigen(objective: Objective, key: Key, top: int, steps: int) -> tuple:
    start = jax.random.normal(key, objective.weights.shape)
    tridiagonal, basis, beyond = lanczos(objective.curvature, start, steps, key)
    values, vectors = jnp.linalg.eigh(tridiagonal)
    leading = vectors[:, ::-1][:, :top].T
    found = leading @ basis
    found /= jnp.linalg.norm(found, axis=1, keepdims=True)
    residuals = jnp.abs(beyond * leading[:, -1])
    return values[::-1][:top], jax.vmap(objective.unravel)(found), residuals


def trace(
    task: Task,
    params: Params,
    data: ClientData,
    key: Key,
    *,
    probes: int = 64,
    batch_size: int = 256,
    chunk: int | None = None,
) -> Trace:
    """The trace by Hutchinson's estimator: the mean of v'Hv over random signs v.

    Hutchinson, Commun. Stat. Simul. Comput. 19(2), 1990. `probes`, 2 or more, is the
    number of v; the other arguments are those of `eigen`.
    """
    at_least("probes", probes, 2)
    found = measure(
        _trace, task, params, data, key, (probes,), batch_size=batch_size, chunk=chunk
    )
    return Trace(*found)


def _trace(objective: Objective, key: Key, probes: int) -> tuple[Array, Array]:
    def form(key: Key) -> Array:
        v = jax.random.rademacher(key, objective.weights.shape, jnp.float32)
        return v @ objective.curvature(v)

    forms = jax.lax.map(form, jax.random.split(key, probes))
    return forms.mean(), forms.std(ddof=1) / jnp.sqrt(probes)


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
    chunk: int | None = None,
) -> Density:
    """The density of the eigenvalues by stochastic Lanczos quadrature.

    Each of `probes` random signs v gives the nodes and weights of a quadrature; their
    mean is smoothed by Gaussians of deviation `sigma`, in units of eigenvalues: None
    for 1/100 of the span of all nodes. Ghorbani, Krishnan and Xiao, ICML 2019,
    https://arxiv.org/abs/1901.10159 (Section 2). `steps` None is 40, or the number of
    parameters if it is less. Other arguments as of `eigen`.
    """
    at_least("probes", probes, 1)
    steps = min(DENSITY_STEPS, size(task)) if steps is None else steps
    at_least("steps", steps, 1, size(task))
    if sigma is not None and not sigma > 0:
        raise ValueError(f"sigma is {sigma}, expected a positive number, or None")
    nodes, weights = measure(
        _quadrature, task, params, data, key, (probes, steps), batch_size=batch_size,
        chunk=chunk,
    )  # fmt: skip
    return Density(*smoothed(nodes, weights, sigma), nodes, weights)


def _quadrature(
    objective: Objective, key: Key, probes: int, steps: int
) -> tuple[Array, Array]:
    """Nodes and weights, f32[P, m], of v'f(H)v / v'v for each probe."""

    def one(key: Key) -> tuple[Array, Array]:
        v = jax.random.rademacher(key, objective.weights.shape, jnp.float32)
        tridiagonal, *_ = lanczos(objective.curvature, v, steps, key)
        nodes, vectors = jnp.linalg.eigh(tridiagonal)
        return nodes, vectors[0] ** 2

    return jax.lax.map(one, jax.random.split(key, probes))


def smoothed(
    nodes: np.ndarray, weights: np.ndarray, sigma: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(grid [G], density [..., G]) of nodes and weights [..., P, m], in NumPy.

    The grid ends 5 deviations beyond the outermost nodes.
    """
    finite = nodes[np.isfinite(nodes)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    wide = sigma or (high - low) / 100 or 1e-3 * max(abs(high), 1e-3)
    grid = np.linspace(low - 5 * wide, high + 5 * wide, POINTS)
    clients = nodes.shape[:-2]
    density = np.zeros((*clients, POINTS))
    pairs = (np.moveaxis(a.reshape(*clients, -1), -1, 0) for a in (nodes, weights))
    for node, weight in zip(*pairs, strict=True):  # one node of every client at a time
        bell = np.exp(-((grid - node[..., None]) ** 2) / (2 * wide**2))
        density += weight[..., None] * bell
    return grid, density / (nodes.shape[-2] * np.sqrt(2 * np.pi) * wide)


def lanczos(
    product: Callable[[Array], Array], start: Array, steps: int, key: Key
) -> tuple[Array, Array, Array]:
    """(tridiagonal T [m, m], basis Q [m, D], beyond []): Q H Q' = T in m steps.

    Lanczos' algorithm with full reorthogonalisation, twice at each step (Golub and Van
    Loan, Matrix Computations, 4th ed., Section 10.3). `beyond` is the next off-diagonal
    entry. Where the space of start, H start, ... ends early, as it does for a client of
    few rows, it goes on with a random vector outside of it, and T has a zero there:
    eigenvalues stay true, and no direction is found twice.
    """
    close = 8 * jnp.finfo(start.dtype).eps

    def clear(basis: Array, w: Array) -> Array:
        w -= (basis @ w) @ basis
        return w - (basis @ w) @ basis

    def step(index: Array, carry: tuple) -> tuple:
        basis, diagonal, off, v, scale = carry
        basis = basis.at[index].set(v)
        w = product(v)
        a, w = v @ w, clear(basis, w)
        b = jnp.linalg.norm(w)
        scale = jnp.maximum(scale, jnp.abs(a) + b)

        def elsewhere() -> tuple[Array, Array]:
            drawn = jax.random.normal(jax.random.fold_in(key, index), v.shape)
            drawn = clear(basis, drawn)
            return drawn / jnp.linalg.norm(drawn), jnp.float32(0)

        ended = b <= close * scale
        v, b = jax.lax.cond(ended, elsewhere, lambda: (w / b, b))
        return basis, diagonal.at[index].set(a), off.at[index].set(b), v, scale

    zeros = jnp.zeros(steps)
    first = jnp.zeros((steps, start.size)), zeros, zeros
    v = start / jnp.linalg.norm(start)
    basis, diagonal, off, *_ = jax.lax.fori_loop(
        0, steps, step, (*first, v, jnp.float32(0))
    )
    beside = jnp.diag(off[:-1], 1)
    return jnp.diag(diagonal) + beside + beside.T, basis, off[-1]
