"""What JAX traces, lowers and compiles, told by program."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from pfljax.runtime import compiling


def test_a_program_is_counted_where_it_is_compiled_and_no_more():
    def doubled(x):
        return x + x

    program = jax.jit(doubled)
    x = jnp.ones(3)
    with compiling.watched() as works:
        program(x)
    assert [work.phase for work in works] == ["trace", "lower", "compile"]
    assert all("doubled" in work.program for work in works)
    seconds = compiling.by_phase(works)
    assert min(seconds.values()) > 0
    assert compiling.programs(works) == 1
    with compiling.watched() as again:
        program(x)
    jax.jit(lambda x: x - 1)(x)  # after the context
    assert again == []


@pytest.fixture
def cache(tmp_path):
    """An empty folder of compiled programs, in use."""
    options = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_without_the_cache_nothing_is_kept_or_fetched(cache):
    def kept(number):
        x = jnp.ones(3)
        jax.jit(lambda x: x * number)(x)
        return {path.name for path in cache.iterdir()}

    before = kept(2)
    assert before
    with compiling.without_cache():
        assert kept(3) == before
    assert kept(4) > before


def test_what_began_before_has_no_time():
    event = next(iter(compiling.PHASES))
    with compiling.watched() as works:
        jax.monitoring.record_event_duration_secs(event, 1.0, fun_name="earlier")
    assert works == []
