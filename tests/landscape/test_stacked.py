"""How many models are judged at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.engine import chunked_vmap
from pfljax.landscape import stacked
from pfljax.runtime import memory


def _squares(x, width):
    def one(x):
        return (x[:, None] * x).sum()

    return chunked_vmap.over_clients(one, (x,), jnp.ones(len(x), int), width)


def test_as_many_models_at_once_as_fit_into_memory(monkeypatch):
    program, given = jax.jit(_squares, static_argnums=1), (np.ones((40, 99), "f4"),)
    needs = {
        width: memory.needed_bytes(program.lower(*given, width).compile())
        for width in stacked.WIDTHS
    }
    assert needs[32] > needs[16] > needs[8] > needs[1]
    for free, width in ((needs[32], 32), (needs[32] - 1, 16), (needs[8], 8), (0, 1)):
        monkeypatch.setattr(memory, "free_bytes", lambda _, free=free: free)
        assert stacked.widest(program, given) == width


@pytest.mark.parametrize(
    ("backend", "chunk", "width"),
    [("cpu", None, 1), ("cpu", 3, 3), ("gpu", None, 16), ("gpu", 3, 3)],
)
def test_a_chunk_that_is_given_is_taken(backend, chunk, width, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(stacked, "widest", lambda program, given: 16)
    assert stacked.call(lambda x, width: (x, width), ("x",), chunk) == ("x", width)
