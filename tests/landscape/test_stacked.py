"""How many models are evaluated at a time."""

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.engine import chunked_vmap
from pfljax.landscape import stacked
from pfljax.runtime import memory


def _squares(x, width):
    def sum_of_products(x):
        return (x[:, None] * x).sum()

    return chunked_vmap.over_clients(
        sum_of_products, (x,), jnp.ones(len(x), int), width
    )


def test_as_many_models_at_once_as_fit_into_memory(monkeypatch):
    program, given = jax.jit(_squares, static_argnums=1), (np.ones((40, 99), "f4"),)
    needs = {
        width: memory.needed_bytes(program.lower(*given, width).compile())
        for width in stacked.WIDTHS
    }
    assert needs[32] > needs[16] > needs[8] > needs[1]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for free, width in ((needs[32], 32), (needs[32] - 1, 16), (needs[8], 8), (0, 1)):
        monkeypatch.setattr(memory, "free_bytes", lambda _, free=free: free)
        assert stacked.choose_width(program, given) == width
