import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from pfljax import models
from pfljax.core import tree
from pfljax.core.types import Batch
from pfljax.models.nnx import task_from_nnx

KEY = jax.random.key(0)


class Model(nnx.Module):
    def __init__(self, body, head):
        self.body, self.head = body, head


def mlp(rngs):
    layers = [nnx.Linear(4, 5, rngs=rngs), nnx.relu, nnx.Linear(5, 6, rngs=rngs)]
    return Model(nnx.Sequential(*layers, nnx.relu), nnx.Linear(6, 3, rngs=rngs))


def dropping(rngs):
    body = nnx.Sequential(
        nnx.Linear(4, 8, rngs=rngs),
        nnx.Dropout(0.5, rngs=rngs),
        nnx.Dropout(0.5, rngs=rngs),
    )
    return Model(body, nnx.Linear(8, 3, rngs=rngs))


def batch():
    x = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    return Batch(x, np.arange(6) % 3, np.float32([1, 1, 0, 1, 1, 1]))


def twins():
    """(Linen task, its params, NNX task, its params): one set of weights."""
    linen = models.task(models.mlp(3, hidden=(5, 6)), (4,), shift=0.1, scale=2.0)
    other = task_from_nnx(mlp, (4,), shift=0.1, scale=2.0)
    params = jax.jit(linen.init)(KEY)
    first, second = params["body"]["layers_1"], params["body"]["layers_3"]
    body = {"layers": {"0": first, "2": second}}
    return linen, params, other, {"body": body, "head": params["head"]}


def five_steps(task, params):
    def step(params, key):
        loss, gradient = jax.value_and_grad(task.loss)(params, batch(), key)
        return tree.axpy(-0.1, gradient, params), (loss, gradient)

    return jax.jit(lambda p: jax.lax.scan(step, p, jax.random.split(KEY, 5)))(params)


def test_linen_and_nnx_are_the_same_task():
    linen, params, other, same = twins()
    shapes = jax.eval_shape(other.init, KEY)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, same)
    ours, theirs = five_steps(linen, params), five_steps(other, same)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    for a, b in pairs:  # params after five steps, losses, gradients
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_nnx_labels_features_and_head():
    _, _, task, params = twins()
    assert task.num_modules == 3
    assert task.modules["body"]["layers"]["2"] == {"bias": 1, "kernel": 1}
    assert task.modules["head"] == {"bias": 2, "kernel": 2}
    assert task.groups["body"]["layers"]["0"] == {"bias": "body", "kernel": "body"}
    logits = task.head(params, task.features(params, batch(), None))
    np.testing.assert_array_equal(logits, task.predict(params, batch()))


def test_nnx_dropout_is_on_in_the_loss_alone_and_follows_the_key():
    task = task_from_nnx(dropping, (4,))
    params, loss = jax.jit(task.init)(KEY), jax.jit(task.loss)
    losses = [float(loss(params, batch(), jax.random.key(i))) for i in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]
    logits = task.predict(params, batch())
    np.testing.assert_array_equal(logits, task.predict(params, batch()))


@pytest.mark.slow
def test_nnx_params_are_stacked_over_clients():
    task = task_from_nnx(mlp, (4,))
    params = jax.jit(jax.vmap(task.init))(jax.random.split(KEY, 3))
    logits = jax.vmap(task.predict, (0, None))(params, batch())
    assert logits.shape == (3, 6, 3)
    np.testing.assert_allclose(
        logits[1], task.predict(tree.take(params, 1), batch()), atol=1e-5
    )


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda rngs: nn.Dense(3), "for Flax Linen use pfljax.models.task"),
        (lambda rngs: nnx.Linear(4, 3, rngs=rngs), "no attribute body and no head"),
        (
            lambda rngs: Model(nnx.Variable(jnp.zeros(())), nnx.relu),
            "state Variable, expected Param and BatchStat alone",
        ),
    ],
)
def test_modules_that_are_no_model_are_named(factory, message):
    with pytest.raises(ValueError, match=message):
        task_from_nnx(factory, (4,))
