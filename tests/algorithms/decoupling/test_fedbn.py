import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import tiny
from pfljax import models
from pfljax.algorithms.decoupling.fedbn import fedbn
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch
from pfljax.simulate import begin

# The toy has no normalisation: there it is FedAvg, and a run refuses it.
CONFORMANCE = [Case("fedbn", bytes=(toy.WHOLE, toy.WHOLE))]

LOCAL = toy.full_batch(epochs=2)
TRAIN, _ = toy.ragged()
CLIENTS = len(toy.SIZES)


def task():
    normal = nn.BatchNorm(momentum=0.0, epsilon=1e-9)
    body = nn.Sequential([nn.Dense(4, use_bias=False), normal, nn.relu])
    return toy.traced_once(models.task(models.Network(body, nn.Dense(3)), (3,)))


def shifted():
    """The clients, each with a contrast of its own."""
    x = np.array(TRAIN.examples.x)
    for k in range(CLIENTS):
        own = slice(int(TRAIN.offset[k]), int(TRAIN.offset[k] + TRAIN.size[k]))
        x[own] *= 1 + k
    return TRAIN._replace(examples=TRAIN.examples._replace(x=jnp.asarray(x)))


def logits(method, task, data):
    """Of each client's first three examples, by its model after two rounds."""
    states, _ = toy.run_rounds(method, task, LOCAL, data, rounds=2)

    def of_client(client, offset):
        x = jax.lax.dynamic_slice_in_dim(data.examples.x, offset, 3)
        model = method.personal(None, states[-1].server, client, None)
        return method.predict(model, Batch.full(x))

    return jax.vmap(of_client)(states[-1].clients, data.offset)


def test_a_change_of_contrast_is_invisible_to_fedbn():
    """Statistics of a client follow its examples, and its other steps do not see it."""
    net = task()
    one, other = (logits(fedbn(net, LOCAL), net, data) for data in (TRAIN, shifted()))
    np.testing.assert_allclose(one, other, atol=1e-3)


def test_a_model_without_normalisation_is_refused():
    job = tiny.TINY.replace(algorithm="fedbn")
    with pytest.raises(
        ValueError, match=r"fedbn .*in its norm; choose .*norm="
    ) as error:
        begin.check_method(job, None, None)
    assert "\n" not in str(error.value)
