"""Lanczos' algorithm on a symmetric operator that is known by its products.

That of matfree 0.6.3 was no faster, and gave wrong results without a warning for a
Hessian whose rank is lower than the number of steps (a client with 3 examples).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Key


class Lanczos(NamedTuple):
    """The recurrence before a step."""

    basis: Array  # f32[m, D], zero in the vectors that are still to come
    diagonal: Array  # f32[m] of the tridiagonal matrix
    off_diagonal: Array  # f32[m], the entry behind each diagonal one
    direction: Array  # f32[D], the next vector of the basis
    scale: Array  # f32[], the greatest |a| + |b| so far: what zero is measured by


def lanczos(
    product: Callable[[Array], Array],
    start: Array,
    steps: int,
    key: Key,
) -> tuple[Array, Array, Array]:
    """(tridiagonal T [m, m], basis Q [m, D], beyond []): Q H Q' = T in m steps.

    With full reorthogonalisation, twice at each step (Golub and Van Loan, Matrix
    Computations, 4th ed., Section 10.3). `beyond` is the next off-diagonal entry. If
    the space of start, H start, ... ends early, as it does for a client with few
    examples, the recurrence continues with a random vector outside of it, and T has a
    zero there: eigenvalues stay true, and no direction is found twice.
    """
    close_to_zero = 8 * jnp.finfo(start.dtype).eps

    def step(index: Array, state: Lanczos) -> Lanczos:
        v = state.direction
        basis = state.basis.at[index].set(v)
        image = product(v)
        a = v @ image
        rest = _orthogonal(basis, image)
        b = jnp.linalg.norm(rest)
        scale = jnp.maximum(state.scale, jnp.abs(a) + b)

        # A Krylov space of few examples ends before `steps`: the rest is rounding.
        direction, entry = jax.lax.cond(
            b <= close_to_zero * scale,
            lambda: _draw_outside(basis, jax.random.fold_in(key, index)),
            lambda: (rest / b, b),
        )
        return Lanczos(
            basis=basis,
            diagonal=state.diagonal.at[index].set(a),
            off_diagonal=state.off_diagonal.at[index].set(entry),
            direction=direction,
            scale=scale,
        )

    first = Lanczos(
        basis=jnp.zeros((steps, start.size)),
        diagonal=jnp.zeros(steps),
        off_diagonal=jnp.zeros(steps),
        direction=start / jnp.linalg.norm(start),
        scale=jnp.float32(0),
    )
    last = jax.lax.fori_loop(0, steps, step, first)
    return _tridiagonal(last), last.basis, last.off_diagonal[-1]


def _draw_outside(basis: Array, key: Key) -> tuple[Array, Array]:
    """(a random vector of norm 1 outside the basis, its off-diagonal entry, 0)."""
    normal = jax.random.normal(key, basis.shape[1:])
    outside = _orthogonal(basis, normal)
    return outside / jnp.linalg.norm(outside), jnp.float32(0)


def _tridiagonal(state: Lanczos) -> Array:
    beside = jnp.diag(state.off_diagonal[:-1], 1)
    return jnp.diag(state.diagonal) + beside + beside.T


def _orthogonal(basis: Array, w: Array) -> Array:
    """The part of w outside the basis; a single pass would leave rounding errors."""
    w -= (basis @ w) @ basis
    return w - (basis @ w) @ basis
