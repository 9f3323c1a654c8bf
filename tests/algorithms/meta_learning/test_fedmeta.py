import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.meta_learning.fedmeta import fedmeta
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.types import Batch

BOTH = (toy.WHOLE, toy.WHOLE)
TWICE = (2 * toy.WHOLE, 2 * toy.WHOLE)
CONFORMANCE = [
    Case("fedmeta", bytes=BOTH, ignores_steps=True),
    Case(
        "fedmeta",
        {"learn_alpha": True, "inner_steps": 2},
        bytes=TWICE,
        ignores_steps=True,
    ),
]
INNER = 0.3


def gradients(k, theta, alpha, steps, first_order):
    """(g, g_alpha) of quadratic client k, by the chain rule."""
    path = [theta]
    for _ in range(steps):
        path.append(path[-1] - alpha * toy.gradient(k, path[-1]))
    g, g_alpha = toy.gradient(k, path[-1]), 0.0
    for point in path[-2::-1]:
        g_alpha = g_alpha - toy.gradient(k, point) * g
        g = g if first_order else (1 - alpha * toy.A[k]) * g
    return g, g_alpha


@pytest.mark.parametrize(("learn_alpha", "first_order"), [(False, True), (True, False)])
def test_fedmeta_against_numpy(learn_alpha, first_order):
    options = {"learn_alpha": learn_alpha, "first_order": first_order}
    states, drawn = toy.run_quadratic(
        fedmeta, inner_lr=INNER, inner_steps=2, rounds=2, **options
    )
    theta, alpha = toy.flat(states[0].server.w.theta), np.full(3, INNER)
    for ids, state in zip(drawn, states[1:], strict=True):
        each = [gradients(k, theta, alpha, 2, first_order) for k in ids]
        g, g_alpha = (np.mean(part, axis=0) for part in zip(*each, strict=True))
        theta = theta - toy.RATE * g
        found = state.server.w
        np.testing.assert_allclose(toy.flat(found.theta), theta, rtol=1e-5, atol=1e-5)
        if learn_alpha:
            alpha = alpha - toy.RATE * g_alpha
            np.testing.assert_allclose(toy.flat(found.alpha), alpha, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("first_order", [False, True])
def test_the_meta_gradient_is_that_of_autodiff(first_order):
    """Through two inner steps of a perceptron; 4 of 20 examples are for support."""
    task, local = toy.classifier(), toy.full_batch()._replace(batch_size=3)
    options = {"inner_lr": 0.5, "inner_steps": 2, "first_order": first_order}
    method = fedmeta(task, local, learn_alpha=True, **options)
    data = toy.one(toy.ragged()[0], 1)
    meta = method.init(task.init(jax.random.key(1)), 8, jax.random.key(0)).w

    def objective(theta, alpha):
        for _ in range(2):
            slope = jax.grad(task.loss)(theta, batch(data, 0, 4), None)
            if first_order:
                slope = jax.lax.stop_gradient(slope)
            move = jax.tree.map(jnp.multiply, alpha, slope)
            theta = tree.sub(theta, move)
        return task.loss(theta, batch(data, 4, 20), None)

    wanted = jax.jit(jax.grad(objective, (0, 1)))(*meta)
    turn = toy.turn(jax.random.key(0))
    _, upload, metrics = jax.jit(method.train)(turn, meta, (), data)
    toy.assert_close(tuple(upload), wanted, 1e-5)
    assert float(metrics["query_loss"]) == pytest.approx(float(objective(*meta)))
    first = task.loss(meta.theta, batch(data, 0, 4), None)
    assert float(metrics["loss"]) == pytest.approx(float(first))


def batch(data, first, end):
    span = slice(int(data.offset) + first, int(data.offset) + end)
    return Batch.full(*(leaf[span] for leaf in data.examples))


def test_a_client_is_evaluated_after_adaptation_on_its_support():
    method = fedmeta(
        toy.quadratic(), toy.full_batch(), inner_lr=INNER, inner_steps=2, support=0.4
    )
    data, theta = toy.one(toy.noisy_clients(), 1), np.float32([1, 2, 3])
    server = method.init(toy.unflat(theta), 8, jax.random.key(0))
    evaluated = toy.flat(method.personal(toy.turn(), server, (), data))
    mean = np.asarray(batch(data, 0, 8).x[:, 1:]).mean(0)  # of 20 examples
    expected = toy.descend(theta, lambda x: x - mean, 2, INNER)
    np.testing.assert_allclose(evaluated, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_lr": -0.1}, "inner_lr is -0.1; expected a finite number >= 0"),
        ({"inner_steps": 0}, "inner_steps is 0; expected at least 1"),
        ({"support": 1.0}, "support is 1.0; expected a number > 0 and below 1"),
        ({"support": 0.0}, "support is 0.0; expected a number > 0 and below 1"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fedmeta(toy.quadratic(), toy.full_batch(), **options)
