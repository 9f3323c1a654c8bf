import jax
import jax.numpy as jnp
import numpy as np

from pfljax.conformance import toy
from pfljax.core.losses import data_loss, mask_absent
from pfljax.core.types import Batch


def test_the_loss_of_a_models_logits_is_the_tasks_loss():
    task = toy.classifier()
    params = task.init(jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    batch = Batch(x, jnp.asarray([0, 1, 2, 0]), jnp.asarray([1.0, 1, 0, 1]))
    own = data_loss(task, task.logits(params, batch, None), batch)
    np.testing.assert_allclose(own, task.loss(params, batch, None), rtol=1e-6)
    nothing = batch._replace(mask=jnp.zeros(4))
    assert data_loss(task, task.logits(params, batch, None), nothing) == 0


def test_absent_classes_have_the_logit_zero_and_no_slope():
    """In the softmax they keep e^0."""
    logits = jnp.array([[2.0, -1.0, 3.0], [0.5, 4.0, -2.0]])
    present = jnp.array([1.0, 0.0, 1.0])
    batch = Batch(jnp.zeros((2, 1)), jnp.array([0, 2]), jnp.ones(2))

    def loss(logits):
        return data_loss(toy.classifier(), mask_absent(logits, present), batch)

    masked = np.array([[2.0, 0, 3], [0.5, 0, -2]])
    entropies = np.log(np.exp(masked).sum(1)) - masked[[0, 1], [0, 2]]
    np.testing.assert_allclose(loss(logits), entropies.mean(), rtol=1e-6)
    slope = np.asarray(jax.grad(loss)(logits))
    assert not slope[:, 1].any()
    assert slope[:, [0, 2]].all()
