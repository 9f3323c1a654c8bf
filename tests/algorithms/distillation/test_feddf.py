from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax import engine, models, selection
from pfljax.algorithms.distillation.feddf import feddf
from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import Case, toy
from pfljax.core.minibatches import take_examples
from pfljax.core.types import Batch
from pfljax.engine.setting import Groups

# Few steps of the server: Adam's are as long for a gradient of rounding as for any, so
# that after the default 1000 the order of a sum is seen in the result.
CONFORMANCE = [
    Case("feddf", {"server_steps": 5}, bytes=(toy.WHOLE, toy.WHOLE)),
]

TASK = toy.classifier()
TRAIN, _ = toy.ragged()
FULL = perceptron.FULL
STEPS, RATE = 3, 1e-2


def played(method, rounds=1, **options):
    public = toy.public()
    states, _ = toy.run_rounds(
        method, TASK, FULL, TRAIN, rounds, public=public, **options
    )
    return states


def of_adam(w, x, target):
    """[b, W, c, V] after Adam with a cosine rate, on all examples of the server."""
    first = [np.zeros_like(leaf) for leaf in w]
    second = [np.zeros_like(leaf) for leaf in w]
    for t in range(STEPS):
        z = perceptron.features(w, x)
        of_logits = (perceptron.softmax(perceptron.logits(w, z)) - target) / len(x)
        after = perceptron.stepped(w, x, of_logits, rate=1.0)
        slopes = [old - new for old, new in zip(w, after, strict=True)]
        assert np.sqrt(sum((g**2).sum() for g in slopes)) < 5, "no gradient is cut"
        rate = RATE * (1 + np.cos(np.pi * t / STEPS)) / 2
        first = [0.9 * m + 0.1 * g for m, g in zip(first, slopes, strict=True)]
        second = [0.999 * v + 0.001 * g**2 for v, g in zip(second, slopes, strict=True)]
        w = [
            leaf
            - rate
            * m
            / (1 - 0.9 ** (t + 1))
            / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 1e-8)
            for leaf, m, v in zip(w, first, second, strict=True)
        ]
    return w


def test_feddf_against_numpy():
    """Each step takes all public examples; the teacher is the mean of the logits."""
    method = feddf(TASK, FULL, server_steps=STEPS, server_lr=RATE, server_batch_size=8)
    averaged, distilled = played(fedavg(TASK, FULL))[1], played(method)[1]
    start = perceptron.weights(averaged.server)
    x = np.float64(toy.public().examples.x)
    logits = []
    initial = perceptron.weights(played(method, rounds=0)[0].server[0])
    for k in range(8):
        w = initial
        own, y = perceptron.examples(k)
        for _ in range(2):
            a = perceptron.logits(w, perceptron.features(w, own))
            w = perceptron.stepped(w, own, perceptron.cross_entropy_slope(a, y))
        logits.append(perceptron.logits(w, perceptron.features(w, x)))
    target = perceptron.softmax(np.mean(logits, 0))
    expected = of_adam(start, x, target)
    for leaf, wanted in zip(
        perceptron.weights(distilled.server[0]), expected, strict=True
    ):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_without_steps_it_is_fedavg():
    several = {"rounds": 2, "cohort": 5}
    plain = played(fedavg(TASK, FULL), **several)
    ours = played(feddf(TASK, FULL, server_steps=0), **several)
    for a, b in zip(plain, ours, strict=True):
        toy.assert_same(a.server, b.server[0])


@pytest.mark.slow
def test_one_client_alone_teaches_nothing_new():
    """Its mean is its own model, whose divergence from itself has no slope."""
    alone = {"cohort": 1}
    plain = played(fedavg(TASK, FULL), **alone)[1]
    ours = played(feddf(TASK, FULL, server_steps=5), **alone)[1]
    toy.assert_same(plain.server, ours.server[0])


@pytest.fixture(scope="module")
def two():
    """(tasks, the state after a round of feddf on two architectures, its options)."""
    tasks = [models.task(models.mlp(3, hidden=(width,)), (3,)) for width in (4, 6)]
    peers = tuple(tasks)
    tasks = [task._replace(peers=peers, number=n) for n, task in enumerate(peers)]
    return tuple(tasks)


def rounds_of_two(tasks, **options):
    methods = tuple(feddf(task, FULL, **options) for task in tasks)
    setting = engine.Setting(
        methods[0],
        FULL,
        selection.uniform(8, 8),
        groups=Groups(methods, tasks, (0, 1)),
    )
    first = engine.init(setting, tasks[0], 8, jax.random.key(0))
    step = jax.jit(
        lambda state: engine.one_round(setting, state, TRAIN, None, toy.public())
    )
    return first, step(first)[0]


@pytest.mark.slow
def test_each_architecture_has_the_mean_of_its_own(two):
    first, after = rounds_of_two(two, server_steps=0)
    for number, task in enumerate(two):
        slope = jax.jit(jax.grad(partial(task.loss, key=None)))
        uploads = []
        for k in range(number, 8, 2):
            data, w = toy.one(TRAIN, k), first.server[number]
            for _ in range(2):
                # All clients in one shape: examples of others do not count.
                index = jnp.arange(max(toy.SIZES))
                grads = slope(w, take_examples(data, index, index < data.size))
                w = jax.tree.map(lambda leaf, g: leaf - perceptron.RATE * g, w, grads)
            uploads.append(w)
        weight = np.float64(TRAIN.size[number::2])
        mean = jax.tree.map(
            lambda *leaves, weight=weight: np.average(leaves, 0, weight), *uploads
        )
        toy.assert_close(after.server[number], mean)


@pytest.mark.slow
def test_all_architectures_teach_each(two):
    """After many steps both students say what the mean of all eight teachers says."""
    _, sent = rounds_of_two(two, server_steps=0)
    _, after = rounds_of_two(two, server_steps=400, server_lr=3e-2)
    batch = Batch.full(toy.public().examples.x)

    def apart(state):
        a, b = (
            np.asarray(jax.nn.softmax(task.predict(params, batch)))
            for task, params in zip(two, state.server, strict=True)
        )
        return np.abs(a - b).max()

    assert apart(after) < 0.05 < apart(sent)


def test_a_server_without_examples_is_refused():
    with pytest.raises(ValueError, match="needs examples at the server, and"):
        feddf(TASK, FULL, num_public=0)
