"""Rounds of 1,000 clients of TwoNN, of which 50 are asked, as they are compiled."""

import jax
import jax.numpy as jnp
import pytest

from pfljax import algorithms, engine, models, selection
from pfljax.core.types import ClientData, Examples, Local

CLIENTS, COHORT, ROWS = 1000, 50, 60_000
MODEL = 4 * 199_210  # bytes
FLOCO = 4 * (10 * 2010 + 10)  # of a client, at its server: ten heads and weights


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("fedcurv", 2),
        ("fedamp", 2),
        ("fedala", 1.1),
        ("fedfomo", 2),
        ("apple", 2),
        ("floco", FLOCO / MODEL),
    ],
)
def test_what_a_round_makes_beside_its_state_is_small(name, kept):
    """So many models a client are kept, and all is within 8 GB by far."""
    task, local = models.task(models.twonn(10), (784,)), Local(0.1, batch_size=20)
    method = algorithms.method(name)(task, local)
    setting = engine.Setting(method, local, selection.uniform(COHORT, CLIENTS), 10)

    def first(key):
        return engine.init(setting, task, CLIENTS, key)

    pool = Examples(
        x=jax.ShapeDtypeStruct((ROWS, 784), jnp.uint8),
        y=jax.ShapeDtypeStruct((ROWS,), jnp.int32),
    )
    number = jax.ShapeDtypeStruct((CLIENTS,), jnp.int32)
    state = jax.eval_shape(first, jax.random.key(0))
    program = engine.compile_rounds(setting, 10)
    args = state, ClientData(pool, number, number), jax.ShapeDtypeStruct((), jnp.int32)
    stats = program.lower(*args).compile().memory_analysis()
    assert stats is not None
    in_state = stats.argument_size_in_bytes - ROWS * 784
    assert in_state == pytest.approx(kept * CLIENTS * MODEL, rel=0.1)
    made = stats.temp_size_in_bytes
    made += stats.output_size_in_bytes - stats.alias_size_in_bytes
    assert made < 600 * MODEL
    assert stats.argument_size_in_bytes + made < 8e9
