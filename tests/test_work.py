"""The work that a method declares is the number of gradients that it computes."""

import jax
import jax.numpy as jnp
import pytest

from pfljax import algorithms
from pfljax.conformance import toy
from pfljax.core.training import budget
from pfljax.core.types import Local
from pfljax.runtime.programs import quickly_compiled

LOCAL = Local(learning_rate=0.05, batch_size=4, epochs=1)
CLIENT = 2  # has 7 examples: two minibatches an epoch
UNCOUNTED = ("l2gd", "mocha")  # declares the mean over rounds; ascends a dual
OPTIONS = {
    "ditto": {"personal_epochs": 3},
    "fedrep": {"head_epochs": 3},
    "floco": {"lam": 1.0, "vertices": 3},
    "fedmeta": {"first_order": True},
    "fedmd": {"pretrain_epochs": 2, "pretrain_own_epochs": 3, "digest_epochs": 2},
    "ifca": {"averaging": "gradients"},
    "pfedvem": {"samples": 1, "head_steps": 3},
    "per_fedavg": {"variant": "hessian_free"},
    "scaffold": {"option": "I"},
}


def count_gradients(task, counts):
    """The task, which appends to `counts` when a gradient is computed."""

    @jax.custom_vjp
    def tick(value):
        return value

    def backward(_, slope):
        # With an argument, it is called for each model of a vmap.
        jax.debug.callback(lambda slope: counts.append(1), slope)
        return (slope,)

    tick.defvjp(lambda value: (value, None), backward)

    def counted(f):
        return lambda *arguments: tick(f(*arguments))

    return task._replace(
        loss=counted(task.loss),
        logits=counted(task.logits),
        features=counted(task.features),
        predict=counted(task.predict),
    )


def train(method, turn, message, client, data):
    """What `train` of the method returns, compiled without optimisations."""
    turn, num_clients = turn._replace(num_clients=None), turn.num_clients

    def run(turn, *rest):
        return method.train(turn._replace(num_clients=num_clients), *rest)

    return quickly_compiled(run)(turn, message, client, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(algorithms.methods()) - set(UNCOUNTED)))
def test_work_counts_gradients(name):
    counts = []
    plain = toy.classifier()
    task = count_gradients(plain, counts)
    factory = algorithms.method(name)
    options = toy.run_options(factory, 2) | OPTIONS.get(name, {})
    method = factory(task, LOCAL, **options)
    data = toy.one(toy.ragged()[0], CLIENT)
    steps = budget(LOCAL, data.size)
    key, client_id = jax.random.key(0), jnp.int32(CLIENT)
    turn = toy.turn(key, 1, steps, CLIENT, len(toy.SIZES))._replace(public=toy.public())
    params = plain.init(key)
    server = method.init(params, len(toy.SIZES), key)
    client = method.init_client(params, client_id, key)
    while method is not None:
        counts.clear()
        message = method.message(turn, server, client)
        client, _, _ = jax.block_until_ready(train(method, turn, message, client, data))
        jax.effects_barrier()
        declared = method.work(steps, data.size, jnp.bool_(True))
        assert len(counts) == int(declared)
        method = method.then
