"""The memory of a round: what grows with the population, and what must not."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from pfljax import algorithms, engine, models
from pfljax.core import tree
from pfljax.core.types import ClientData, Examples, Local
from pfljax.engine.setting import Groups
from pfljax.selection import uniform

FEW, MANY = 20, 5_000
EXAMPLES = 4  # of each client
PIXELS = 64


def compile_round(method, clients, groups=None):
    """A round of so many clients: its arguments as shapes, and XLA's account.

    The clients are in so many groups of one model, where the number is given.
    """
    task = models.task(models.mlp(10, hidden=(8,)), (PIXELS,))
    local = Local(0.01, batch_size=4)
    algorithm = algorithms.method(method)(task, local)
    setting = engine.Setting(algorithm, local, uniform(5, clients), width=1)
    if groups is not None:
        equal = (algorithm,) * groups, (task,) * groups, tuple(range(groups))
        setting = setting._replace(groups=Groups(*equal))
    first = partial(engine.init, setting, task, clients)
    state = jax.eval_shape(first, jax.random.key(0))
    shape = jax.ShapeDtypeStruct
    examples = Examples(
        x=shape((clients * EXAMPLES, PIXELS), jnp.float32),
        y=shape((clients * EXAMPLES,), jnp.int32),
    )
    spans = shape((clients,), jnp.int32)
    train = ClientData(examples, offset=spans, size=spans)
    rounds = engine.compile_rounds(setting, 1)
    program = rounds.lower(state, train, jnp.int32(1)).compile()
    return state, examples, program.memory_analysis()


def idle_bytes(groups):
    """By how much a round grows with clients that do not train."""
    few, _, few_sizes = compile_round("local", MANY // 100, groups)
    many, _, many_sizes = compile_round("local", MANY, groups)
    return {
        "clients": tree.nbytes(many.clients) - tree.nbytes(few.clients),
        "temporary": many_sizes.temp_size_in_bytes - few_sizes.temp_size_in_bytes,
        "aliased": many_sizes.alias_size_in_bytes - few_sizes.alias_size_in_bytes,
    }


def test_a_round_copies_neither_the_examples_nor_the_clients_states():
    _, _, few = compile_round("fedper", FEW)
    state, examples, many = compile_round("fedper", MANY)
    added = MANY - FEW
    states = tree.nbytes(state.clients)
    # A head of 8 x 10 weights and 10 biases.
    assert states == MANY * 4 * 90
    server = tree.nbytes(state.server)
    held = tree.nbytes(examples) + states + server
    assert many.argument_size_in_bytes >= held
    # The draw of a cohort holds a few numbers of 4 bytes for each client.
    assert many.temp_size_in_bytes - few.temp_size_in_bytes <= 40 * added
    # Participations are written in place, too.
    assert many.alias_size_in_bytes >= states + server + 4 * MANY


@pytest.mark.slow
def test_clients_that_do_not_train_take_as_much_in_two_groups_as_in_one():
    one = idle_bytes(1)
    model = 4 * (PIXELS * 8 + 8 + 8 * 10 + 10)
    assert one["clients"] == (MANY - MANY // 100) * model
    assert idle_bytes(2) == one
    # Nothing of them is copied: at most some numbers of each, for the draw.
    assert one["temporary"] <= 40 * MANY
