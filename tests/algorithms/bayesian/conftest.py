import jax
import jax.numpy as jnp
import pytest

from pfljax.algorithms.bayesian import _gaussian as gaussian


@pytest.fixture
def exact(monkeypatch):
    """Noise of mean 0 and square 1: two draws make expectations of quadratics exact."""

    def signs(key, like, count):
        sign = jnp.resize(jnp.asarray([1.0, -1.0]), count)
        column = lambda leaf: sign.reshape(-1, *[1] * leaf.ndim)  # noqa: E731
        return jax.tree.map(lambda leaf: column(leaf) * jnp.ones_like(leaf), like)

    monkeypatch.setattr(gaussian, "noise", signs)
