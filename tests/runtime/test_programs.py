"""First states are compiled quickly, and are drawn as ever."""

import jax
import numpy as np
import pytest

from pfljax.runtime import programs


def draw(key):
    return jax.random.truncated_normal(key, -2.0, 2.0, (64,))


@pytest.fixture
def options(monkeypatch):
    """The compiler's options of each `jax.jit`."""
    asked = []
    jit = jax.jit

    def recorded(f, compiler_options=None, **rest):
        asked.append(compiler_options)
        return jit(f, compiler_options=compiler_options, **rest)

    monkeypatch.setattr(jax, "jit", recorded)
    return asked


@pytest.mark.parametrize(
    ("nbytes", "backend", "quick"),
    [
        (0, "cpu", True),
        (programs.FEW_BYTES, "cpu", True),
        (programs.FEW_BYTES + 1, "cpu", False),
        (0, "gpu", False),
    ],
)
def test_few_states_are_compiled_quickly_on_a_cpu(
    nbytes, backend, quick, options, monkeypatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    programs.quickly_compiled(draw, nbytes)
    assert options == [programs.UNOPTIMISED if quick else None]


def test_numbers_are_the_same_to_rounding():
    key = jax.random.key(3)
    ours = programs.quickly_compiled(draw)(key)
    np.testing.assert_allclose(ours, jax.jit(draw)(key), rtol=1e-5)
