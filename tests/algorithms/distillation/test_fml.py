from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import models
from pfljax.algorithms.distillation.fml import fml
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core import aggregation
from pfljax.core.losses import divergence
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local

CONFORMANCE = [
    Case("fml", bytes=(toy.WHOLE, toy.WHOLE)),
]

ALPHA, BETA = 0.7, 0.2
TASK = toy.classifier()
TRAIN, _ = toy.ragged()
LOCAL = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))


def equal_starts(task, seed=3):
    """The task, whose models all begin at the same parameters."""
    params = task.init(jax.random.key(seed))
    return task._replace(init=lambda key: params)


def linear(scale):
    """Softmax regression on x / scale: kernel f32[3, 3] and bias f32[3]."""
    return models.task(models.logistic(3), (3,), scale=scale)


def vector(params):
    """(kernel, bias) as one matrix [4, 3], NumPy."""
    (layer,) = params.values()
    return np.r_[np.asarray(layer["kernel"]).T, np.asarray(layer["bias"])[None]]


def softmax(logits):
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def examples_of(data):
    """(x [n, 3], one-hot y [n, 3]) of one client."""
    index = np.arange(int(data.offset), int(data.offset + data.size))
    return np.asarray(data.examples.x)[index], np.eye(3)[
        np.asarray(data.examples.y)[index]
    ]


def mutual_steps(w, v, x, y, steps, rate):
    """FML's steps on all examples, by the slopes in the logits; v sees x / 2."""
    one = np.ones((len(x), 1))
    x_w, x_v = np.c_[x, one], np.c_[x / 2, one]
    for _ in range(steps):
        p, q = softmax(x_w @ w), softmax(x_v @ v)
        slope_w = ALPHA * (p - y) + (1 - ALPHA) * (p - q)
        slope_v = BETA * (q - y) + (1 - BETA) * (q - p)
        w = w - rate * x_w.T @ slope_w / len(x)
        v = v - rate * x_v.T @ slope_v / len(x)
    return w, v


def test_fml_against_numpy():
    task = linear(1.0)._replace(proxy=linear(2.0))
    local = toy.full_batch(epochs=4, rate=0.5)
    method = fml(task, local, alpha=ALPHA, beta=BETA)
    states, _ = toy.run_rounds(method, task, local, TRAIN, rounds=2, cohort=3)
    v = vector(states[0].server)
    first = vector(jax.tree.map(lambda a: a[0], states[0].clients))
    w: Any = dict.fromkeys(range(8), first)
    for state in states[1:]:
        memes = []
        for k in np.asarray(state.cohort):
            x, y = examples_of(toy.one(TRAIN, k))
            w[k], meme = mutual_steps(w[k], v, x, y, 4, 0.5)
            memes.append(meme)
            found = vector(jax.tree.map(lambda a, k=k: a[k], state.clients))
            np.testing.assert_allclose(found, w[k], rtol=1e-4, atol=1e-5)
        v = np.mean(np.stack(memes), 0)
        np.testing.assert_allclose(vector(state.server), v, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_without_mutual_learning_each_of_the_two_trains_alone():
    """w_k is local training and v uniform FedAvg, bit for bit."""
    task = equal_starts(TASK)
    method = fml(task, LOCAL, alpha=1.0, beta=1.0)
    uniform = fedavg(task, LOCAL)._replace(aggregate=aggregation.averaging("uniform"))
    last, mean, own = (
        toy.run_rounds(each, task, LOCAL, TRAIN, rounds=2, cohort=5)[0][-1]
        for each in (method, uniform, alone(task, LOCAL))
    )
    toy.assert_same(last.clients, own.clients)
    toy.assert_same(last.server, mean.server)
    # The two differ from the start of the run, and so would a wrong choice of either.
    assert not np.allclose(last.server["head"]["bias"], own.clients["head"]["bias"][0])


def one_client(method, params, meme, local, steps=5):
    """(w, v) of client 1 after its steps."""
    turn = toy.turn(jax.random.key(0), 0, steps, 1)
    train = jax.jit(lambda v, w: method.train(turn, v, w, toy.one(TRAIN, 1))[:2])
    return train(meme, params)


def test_equal_models_stay_equal_at_a_share_of_the_rate():
    """The divergence of equal models is 0: what is left is alpha CE."""
    local = toy.full_batch()
    start = TASK.init(jax.random.key(1))
    method = fml(TASK, local, alpha=0.25, beta=0.25)
    w, v = one_client(method, start, start, local)
    toy.assert_close(w, v, 1e-6)
    slow = local._replace(learning_rate=0.25 * toy.RATE)
    wanted, _ = one_client(alone(TASK, slow), start, (), slow)
    toy.assert_close(w, wanted, 1e-6)


def test_equal_models_without_labels_rest():
    local = toy.full_batch()
    start = TASK.init(jax.random.key(1))
    w, v = one_client(fml(TASK, local, alpha=0.0, beta=0.0), start, start, local)
    toy.assert_close((w, v), (start, start), 1e-7)


def test_the_meme_is_the_proxy():
    """Private models without a body, beside memes that have one."""
    private = linear(1.0)._replace(proxy=TASK)
    method = fml(private, LOCAL)
    v = method.init(private.init(jax.random.key(0)), 4, jax.random.key(1))
    toy.assert_same(v, TASK.init(jax.random.key(1)))
    w = private.init(jax.random.key(0))
    after = jax.eval_shape(method.train, toy.turn(), v, w, toy.one(TRAIN, 1))
    shapes = [jax.tree.map(jnp.shape, each) for each in (after[:2], (w, v))]
    assert shapes[0] == shapes[1]


def test_a_meme_of_the_task_is_drawn_anew():
    params = TASK.init(jax.random.key(0))
    meme = fml(TASK, LOCAL).init(params, 4, jax.random.key(1))
    assert not np.allclose(meme["head"]["kernel"], params["head"]["kernel"])


@pytest.mark.parametrize("count", [1, 3])
def test_the_divergence_is_a_mean_of_sums_over_classes(count):
    """And its targets are constants; examples of mask 0 do not count."""
    rng = np.random.default_rng(0)
    target, logits = jnp.asarray(rng.normal(size=(2, 4, 3)), jnp.float32)
    batch = Batch.full(np.zeros((4, 1)))._replace(mask=jnp.arange(4) < count)
    p, q = softmax(np.asarray(target)), softmax(np.asarray(logits))
    wanted = (p * np.log(p / q)).sum(1)[:count].mean()
    assert float(divergence(target, logits, batch)) == pytest.approx(wanted, rel=1e-5)
    slope, of_target = jax.grad(divergence, (1, 0))(target, logits, batch)
    share = (np.arange(4) < count)[:, None] / count
    np.testing.assert_allclose(slope, share * (q - p), atol=1e-6)
    assert not of_target.any()
