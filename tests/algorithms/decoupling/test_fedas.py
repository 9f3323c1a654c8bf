import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax.algorithms.decoupling.fedas import Upload, fedas
from pfljax.conformance import Case, toy

SENT = toy.BODY, toy.WHOLE + 4  # a body; a model and its trace
CONFORMANCE = [
    Case("fedas", bytes=SENT),
    Case("fedas", {"align_epochs": 2, "diagonal": "examples"}, bytes=SENT),
]

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, _ = toy.ragged()
RATE = 0.2


def squares(w, x, y):
    """The squared length of the gradient of the mean loss."""
    z = perceptron.features(w, x)
    slope = perceptron.cross_entropy_slope(perceptron.logits(w, z), y)
    after = perceptron.stepped(w, x, slope, rate=1.0)
    return sum(((a - b) ** 2).sum() for a, b in zip(w, after, strict=True))


def trained(w, own, x, y):
    """[b, W, c, V] after two steps of alignment and two of training."""
    target, count = perceptron.by_class(perceptron.features(own, x), y)
    w = [*w[:2], *own[2:]]
    for _ in range(2):
        gap = perceptron.features(w, x) - target[y]
        slope = 2 * gap / (4 * count[y][:, None])
        w = perceptron.stepped(w, x, np.zeros((len(x), 3)), slope, rate=RATE)
    for _ in range(2):
        logits = perceptron.logits(w, perceptron.features(w, x))
        w = perceptron.stepped(w, x, perceptron.cross_entropy_slope(logits, y))
    return w


@pytest.mark.parametrize(
    "diagonal", ["batches", pytest.param("examples", marks=pytest.mark.slow)]
)
def test_fedas_against_numpy(diagonal):
    options = {"align_epochs": 2, "align_lr": RATE, "diagonal": diagonal}
    method = fedas(TASK, LOCAL, **options)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 2, cohort=5)
    w = perceptron.weights(states[0].server)
    own = [w] * 8
    for state in states[1:]:
        uploads, traces = [], np.zeros(8)
        for k in np.asarray(state.cohort):
            x, y = perceptron.examples(k)
            own[k] = trained(w, own[k], x, y)
            rows = [(x, y)]
            if diagonal == "examples":
                rows = [(x[i : i + 1], y[i : i + 1]) for i in range(len(y))]
            traces[k] = np.mean([squares(own[k], *row) for row in rows])
            uploads.append(own[k])
        w = perceptron.averaged(uploads, np.asarray(state.cohort), traces)
        perceptron.assert_weights(state.server, w)
        perceptron.assert_clients(state.clients, own)


@pytest.mark.slow
def test_a_sum_over_minibatches_grows_with_their_number():
    """Of equal examples, whose minibatches have one gradient."""
    data = toy.one(toy.quadratic_clients(), 1)
    params = toy.unflat(np.ones(3))
    local = toy.full_batch(epochs=0)._replace(batch_size=2)
    method = fedas(toy.quadratic()._replace(feature_shape=(2,)), local, align_epochs=0)
    turn = toy.turn(jax.random.key(0), 0, 0)
    body = method.message(turn, params, params)
    _, upload, _ = jax.jit(method.train)(turn, body, params, data)
    slope = toy.gradient(1, np.ones(3))
    np.testing.assert_allclose(upload.trace, 3 * slope @ slope, rtol=1e-5)


def test_clients_without_information_have_no_say():
    method = fedas(TASK, LOCAL)
    w = {"w": jnp.zeros(2)}
    uploads = Upload({"w": jnp.array([[1.0, 2], [5, 6]])}, jnp.array([0.0, 0.3]))
    after = method.aggregate(w, uploads, toy.cohort([1, 1]))
    np.testing.assert_allclose(after["w"], [5, 6])
    toy.assert_same(method.aggregate(w, uploads, toy.cohort([1, 0])), w)
