import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms.distillation.fedakt import fedakt
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.losses import data_loss
from pfljax.core.minibatches import take_examples
from pfljax.core.optimizers import sgd
from pfljax.core.types import Local

CONFORMANCE = [
    Case("fedakt", bytes=(toy.BODY, toy.BODY)),
    Case("fedakt", {"reduction": "sum", "lam": 0.5}, bytes=(toy.BODY, toy.BODY)),
]

LAM, RATE = 0.6, 0.3
TASK = toy.classifier()
TRAIN, _ = toy.ragged()
DATA = toy.one(TRAIN, 1)  # 20 examples: batches of 4 are full
FULL = toy.full_batch(epochs=1, rate=RATE)
LOCAL = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))
START = TASK.init(jax.random.key(1))
OTHER = TASK.init(jax.random.key(2))


def body_of(params):
    return tree.split(params, tree.matches(TASK.groups, "body"))[0]


def trained(method, steps, adapter=OTHER, data=DATA):
    """(w, adapter, metrics) of client 1, from START, after its steps."""
    turn = toy.turn(jax.random.key(0), 0, steps, 1)
    train = jax.jit(lambda d, w: method.train(turn, d, w, data))
    return train(body_of(adapter), START)


@jax.jit
def routed(w, adapter, lam, scale=1):
    """The gradient of a step, by the paper's table of losses and updated parts."""
    size = int(DATA.size)
    batch = take_examples(DATA, jnp.arange(size), jnp.ones(size))

    def losses(body, head, adapter):
        w = tree.merge(body, head)
        own = TASK.features(w, batch, None)
        shared = TASK.features(tree.merge(adapter, head), batch, None)
        first = data_loss(TASK, TASK.head(w, own), batch)
        second = data_loss(TASK, TASK.head(w, shared), batch)
        return first, second, jnp.mean((own - shared) ** 2)

    body, head = tree.split(w, tree.matches(TASK.groups, "body"))

    def slope(argument, total):
        return jax.grad(lambda *parts: total(*losses(*parts)), argument)(
            body, head, adapter
        )

    of_body = slope(0, lambda first, second, gap: first + scale * lam * gap)
    of_head = slope(1, lambda first, second, gap: first + second)
    of_adapter = slope(2, lambda first, second, gap: second + scale * lam * gap)
    return tree.merge(of_body, of_head), of_adapter


@pytest.mark.parametrize("scale", [1, 2])
def test_one_scalar_has_the_slopes_of_the_papers_table(scale):
    """T2: twice the distance is what two losses, both of them undetached, give."""
    method = fedakt(TASK, FULL, lam=LAM, fmd_grad_scale=scale)
    w, adapter, _ = trained(method, steps=1)
    slopes = routed(START, body_of(OTHER), LAM, scale)
    wanted = tree.axpy(-RATE, slopes, (START, body_of(OTHER)))
    toy.assert_close((w, adapter), wanted, 1e-6)
    # The distance is worth seeing: without it the body would be elsewhere.
    without = routed(START, body_of(OTHER), 0.0)
    moved = tree.sub(body_of(slopes[0]), body_of(without[0]))
    assert float(tree.square_norm(moved)) > 1e-5


def linear_task(scale):
    """Logits h (k x / scale) without biases: body f32[3, 4], head f32[4, 3]."""
    body, head = nn.Dense(4, use_bias=False), nn.Dense(3, use_bias=False)
    return models.task(models.Network(body, head), (3,), scale=scale)


def softmax(logits):
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def steps_of(f, h, d, x, y, steps):
    """FedAKT's steps on linear models; the adapter sees x / 2."""
    n = len(x)
    for _ in range(steps):
        own, shared = x @ f, x / 2 @ d
        slope_own, slope_shared = softmax(own @ h) - y, softmax(shared @ h) - y
        apart = LAM * 2 * (own - shared) / 4  # of a mean over 4 features
        slope_f = x.T @ (slope_own @ h.T + apart) / n
        slope_d = (x / 2).T @ (slope_shared @ h.T - apart) / n
        slope_h = (own.T @ slope_own + shared.T @ slope_shared) / n
        f, h, d = f - RATE * slope_f, h - RATE * slope_h, d - RATE * slope_d
    return f, h, d


def test_fedakt_against_numpy():
    task = linear_task(1.0)._replace(proxy=linear_task(2.0))
    local = toy.full_batch(epochs=3, rate=RATE)
    method = fedakt(task, local, lam=LAM)
    states, _ = toy.run_rounds(method, task, local, TRAIN, rounds=2, cohort=3)
    assert states[0].server["head"]["kernel"] is None
    kernel = lambda tree, part: np.asarray(tree[part]["kernel"])  # noqa: E731
    d = kernel(states[0].server, "body")
    for before, after in itertools.pairwise(states):
        ids, adapters = np.asarray(after.cohort), []
        for k in ids:
            own = np.arange(int(TRAIN.offset[k]), int(TRAIN.offset[k] + TRAIN.size[k]))
            x, y = (np.asarray(leaf)[own] for leaf in TRAIN.examples)
            f, h = (kernel(before.clients, part)[k] for part in ("body", "head"))
            f, h, adapter = steps_of(f, h, d, x, np.eye(3)[y], 3)
            adapters.append(adapter)
            for part, wanted in (("body", f), ("head", h)):
                found = kernel(after.clients, part)[k]
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        d = np.average(adapters, axis=0, weights=np.asarray(TRAIN.size)[ids])
        found = kernel(after.server, "body")
        np.testing.assert_allclose(found, d, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_without_both_it_is_local_training_and_the_adapter_rests():
    """T1, bit for bit; by SGD without decay, which would shrink the adapter."""
    local = LOCAL._replace(optimizer=sgd(0.9))
    method = fedakt(TASK, local, lam=0.0, hdu=False)
    first, *_, last = toy.run_rounds(method, TASK, local, TRAIN, rounds=2, cohort=5)[0]
    wanted = toy.run_rounds(alone(TASK, local), TASK, local, TRAIN, rounds=2, cohort=5)[
        0
    ][-1]
    toy.assert_same(last.clients, wanted.clients)
    toy.assert_close(last.server, first.server, 1e-6)  # a mean of equal adapters


def test_without_the_heads_second_loss_the_distance_alone_moves_the_adapter():
    """The second ablation: the head learns as in local training."""
    w, adapter, _ = trained(fedakt(TASK, FULL, lam=LAM, hdu=False), steps=1)
    by_itself, _, _ = trained(alone(TASK, FULL), steps=1)
    toy.assert_close(w["head"], by_itself["head"], 1e-6)
    full, both = routed(START, body_of(OTHER), LAM), routed(START, body_of(OTHER), 0.0)
    of_distance = tree.sub(full[1], both[1])
    toy.assert_close(adapter, tree.axpy(-RATE, of_distance, body_of(OTHER)), 1e-6)
    toy.assert_close(w["body"], tree.axpy(-RATE, full[0], START)["body"], 1e-6)


@pytest.mark.slow
def test_without_the_distance_the_body_first_steps_as_alone():
    """T4: the second CE reaches it later, through the head."""
    method = fedakt(TASK, FULL, lam=0.0)
    for steps, same in ((1, True), (3, False)):
        w, _, _ = trained(method, steps)
        by_itself, _, _ = trained(alone(TASK, FULL), steps)
        kernels = [each["body"]["layers_1"]["kernel"] for each in (w, by_itself)]
        assert np.allclose(*kernels, atol=1e-6) == same


@pytest.mark.parametrize("steps", [1, 5])
def test_an_adapter_that_begins_as_the_body_stays_it(steps):
    """T3: then the head, which has two losses, steps twice as far as alone."""
    w, adapter, _ = trained(fedakt(TASK, FULL, lam=LAM), steps, adapter=START)
    toy.assert_close(adapter, body_of(w), 1e-6)
    if steps == 1:
        by_itself, _, _ = trained(alone(TASK, FULL), 1)
        toy.assert_close(w["body"], by_itself["body"], 1e-6)
        twice = tree.lerp(START["head"], by_itself["head"], 2)
        toy.assert_close(w["head"], twice, 1e-6)
    moved = tree.sub(adapter, body_of(START))
    assert float(tree.square_norm(moved)) > 1e-3


@pytest.mark.slow
def test_the_adapter_of_one_client_is_the_server():
    """T5; that clients may be renumbered is conformance."""
    data = TRAIN._replace(offset=TRAIN.offset[1:2], size=TRAIN.size[1:2])
    method = fedakt(TASK, LOCAL, lam=LAM)
    states, _ = toy.run_rounds(method, TASK, LOCAL, data, rounds=1)
    turn = toy.turn(toy.turn_key(states[0], 0), 0, 10, 0, 1)
    client = jax.tree.map(lambda leaf: leaf[0], states[0].clients)
    train = jax.jit(lambda d, w: method.train(turn, d, w, toy.one(data, 0)))
    _, adapter, _ = train(states[0].server, client)
    toy.assert_close(states[1].server, adapter, 1e-6)


def test_sums_at_a_rate_by_examples_are_means():
    """T6, of full batches."""
    mean = Local(0.2, batch_size=4, epochs=1)
    sums = mean._replace(learning_rate=0.2 / 4)
    by_mean = trained(fedakt(TASK, mean, lam=LAM), steps=5)
    by_sum = trained(fedakt(TASK, sums, lam=LAM, reduction="sum"), steps=5)
    toy.assert_close(by_sum, by_mean, 1e-5)


def test_no_step_changes_nothing():
    """T7."""
    w, adapter, _ = trained(fedakt(TASK, LOCAL), steps=0)
    toy.assert_same((w, adapter), (START, body_of(OTHER)))


def test_the_loss_is_of_the_model_that_is_evaluated():
    _, _, metrics = trained(fedakt(TASK, FULL, lam=LAM), steps=1)
    _, _, wanted = trained(alone(TASK, FULL), steps=1)
    assert float(metrics["loss"]) == pytest.approx(float(wanted["loss"]), rel=1e-6)


def test_bodies_of_two_widths_are_refused():
    narrow = models.task(models.mlp(3, hidden=(2,)), (3,))
    with pytest.raises(ValueError, match=r"shape \(4,\) and .* adapter \(2,\); choose"):
        fedakt(TASK._replace(proxy=narrow), LOCAL)
