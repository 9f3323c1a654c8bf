import jax
import jax.numpy as jnp
import numpy as np

from pfljax.conformance import toy
from pfljax.core.losses import cross_entropy
from pfljax.core.types import Batch


def test_cross_entropy_of_a_models_logits_is_the_tasks_loss():
    task = toy.classifier()
    params = task.init(jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    batch = Batch(x, jnp.asarray([0, 1, 2, 0]), jnp.asarray([1.0, 1, 0, 1]))
    own = cross_entropy(task.logits(params, batch, None), batch)
    np.testing.assert_allclose(own, task.loss(params, batch, None), rtol=1e-6)
    nothing = batch._replace(mask=jnp.zeros(4))
    assert cross_entropy(task.logits(params, batch, None), nothing) == 0
