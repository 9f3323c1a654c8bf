import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import data
from pfljax.conformance import toy
from pfljax.core.losses import (
    cosines,
    data_loss,
    divergence,
    mask_absent,
    without_true,
)
from pfljax.core.types import Batch
from pfljax.models.assembly import example_losses
from pfljax.runs.settings import Experiment
from pfljax.simulate.build import build


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


def test_the_true_class_has_no_part_in_a_divergence_of_the_others():
    """Not its logit in either model; of two classes nothing is left."""
    a, b = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    y = np.array([0, 2, 1, 1, 0])
    true = np.eye(3)[y] == 1

    def gap(a, b):
        batch = Batch.full(jnp.zeros((5, 1)), jnp.asarray(y % a.shape[1]))
        masked = (without_true(jnp.asarray(z), batch) for z in (a, b))
        return divergence(*masked, batch)

    value, slope = jax.value_and_grad(gap, 1)(a, jnp.asarray(b))
    p, q = (np.exp(np.where(true, -99, z)) for z in (a, b))
    p, q = (each / each.sum(1, keepdims=True) for each in (p, q))
    np.testing.assert_allclose(value, (p * np.log(p / q)).sum(1).mean(), rtol=1e-5)
    np.testing.assert_allclose(slope, (q - p) / 5, atol=1e-6)
    np.testing.assert_allclose(gap(a + 50 * true, b), value, rtol=1e-5)
    assert gap(a[:, :2], b[:, :2]) == 0


def test_features_of_zeros_have_no_cosine_and_no_slope():
    z = jnp.array([[0.0, 0], [3, 4], [1, 0]])
    other = jnp.array([[1.0, 2], [4, 3], [0, 0]])
    value, slope = jax.value_and_grad(lambda z: cosines(z, other).sum())(z)
    assert value == pytest.approx(0.96)
    np.testing.assert_array_equal(slope[::2], 0)
    assert jnp.abs(slope[1]).sum() > 0.01


KIND_LOSSES = [
    ("regression", "squared", lambda o, y: ((o - y) ** 2).mean(1)),
    ("regression", "absolute", lambda o, y: abs(o - y).mean(1)),
    (
        "regression",
        "huber:delta=0.5",
        lambda o, y: np.where(
            abs(o - y) < 0.5, (o - y) ** 2 / 2, 0.5 * (abs(o - y) - 0.25)
        ).mean(1),
    ),
]


@pytest.mark.parametrize(("kind", "name", "formula"), KIND_LOSSES)
def test_losses_of_real_targets(kind, name, formula):
    rng = np.random.default_rng(0)
    outputs, y = rng.normal(size=(2, 5, 2)).astype(np.float32)
    found = example_losses(kind, name)(jnp.asarray(outputs), jnp.asarray(y))
    np.testing.assert_allclose(found, formula(outputs, y), rtol=1e-5)


def test_cross_entropy_with_smoothing_and_weights():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 3)).astype(np.float32)
    y, weights = np.array([0, 2, 1, 2]), np.array([1.0, 2.0, 0.5])
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    target = 0.9 * np.eye(3)[y] + 0.1 / 3
    loss = example_losses("classes", "cross_entropy:smoothing=0.1,weights=(1,2,0.5)")
    expected = -(target * log_p).sum(1) * weights[y]
    np.testing.assert_allclose(loss(jnp.asarray(logits), y), expected, rtol=1e-5)


def test_fedavg_of_a_linear_regression_is_that_of_numpy():
    """One full-batch step of each of two clients, and the mean by their examples."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 2)).astype(np.float32), rng.normal(size=(9, 1))
    arrays = data.from_arrays(x, y)
    sizes = data.from_indices([range(6), range(6, 9)])
    federation = data.federate(arrays, sizes, num_clients=2, seed=0, test=0.34)
    experiment = Experiment(model="logistic", rounds=1, cohort=2, batch_size=9)
    experiment = experiment.replace(epochs=1, lr=0.1, clients=2)
    sim, placed = build(experiment, federation)
    state = sim.init(jax.random.key(0))
    before = jax.tree.map(np.array, state.server)
    state, _ = sim.round(state, placed)
    layer = before["head"]
    pool = federation.train.examples
    total = np.zeros((1, 2)), np.zeros(1)
    for offset, size in zip(
        federation.train.offset, federation.train.size, strict=True
    ):
        own = slice(int(offset), int(offset + size))
        error = pool.x[own] @ layer["kernel"].T + layer["bias"] - pool.y[own]
        step = 2 * error.T @ pool.x[own] / size, 2 * error.mean(0)
        for whole, part in zip(total, step, strict=True):
            whole += size * part / np.sum(federation.train.size)
    after = state.server["head"]
    np.testing.assert_allclose(
        after["kernel"], layer["kernel"] - 0.1 * total[0], rtol=1e-4
    )
    np.testing.assert_allclose(after["bias"], layer["bias"] - 0.1 * total[1], rtol=1e-4)
