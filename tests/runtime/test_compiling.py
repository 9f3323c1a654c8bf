"""What JAX traces, lowers and compiles, told by program."""

import jax
import jax.numpy as jnp

from pfljax.runtime import compiling


def test_a_program_is_counted_where_it_is_compiled_and_no_more():
    def doubled(x):
        return x + x

    program = jax.jit(doubled)
    x = jnp.ones(3)
    with compiling.watch() as works:
        program(x)
    assert [work.phase for work in works] == ["trace", "lower", "compile"]
    assert all("doubled" in work.program for work in works)
    seconds = compiling.by_phase(works)
    assert min(seconds.values()) > 0
    assert compiling.programs(works) == 1
    with compiling.watch() as again:
        program(x)
    jax.jit(lambda x: x - 1)(x)  # after the context
    assert again == []


def test_what_began_before_has_no_time():
    event = next(iter(compiling.PHASES))
    with compiling.watch() as works:
        jax.monitoring.record_event_duration_secs(event, 1.0, fun_name="earlier")
    assert works == []
