import jax
import jax.numpy as jnp
import numpy as np

from pfljax.algorithms.bayesian import _lateral as lateral
from pfljax.algorithms.bayesian._lateral import Lateral
from pfljax.conformance import toy
from pfljax.core.losses import data_loss
from pfljax.core.types import Batch

TASK = toy.classifier()
KEY = jax.random.key(0)
SHARED, OWN = (TASK.init(key) for key in jax.random.split(KEY))
X = np.random.default_rng(0).normal(size=(5, 3))
BATCH = Batch.full(jnp.asarray(X, jnp.float32), jnp.asarray([0, 1, 2, 1, 0]))
GATE = jnp.asarray([0.5, 0.0, -2.0])


def test_a_gate_adds_the_logits_of_the_own_path_by_class():
    found = lateral.logits(TASK, Lateral(SHARED, OWN, GATE), BATCH)
    shared, own = (TASK.predict(each, BATCH) for each in (SHARED, OWN))
    expected = shared + np.asarray([0.5, 0, 0]) * own
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    loss = lateral.loss(TASK, Lateral(SHARED, OWN, GATE), BATCH, KEY)
    assert float(loss) == float(data_loss(TASK, found, BATCH))


def test_without_an_own_path_it_is_the_shared_model():
    alone = Lateral(SHARED, (), GATE)
    expected = TASK.predict(SHARED, BATCH)
    for model in (alone, SHARED):
        toy.assert_same(lateral.logits(TASK, model, BATCH), expected)
    loss = lateral.loss(TASK, alone, BATCH, KEY)
    toy.assert_same(loss, TASK.loss(SHARED, BATCH, KEY))
