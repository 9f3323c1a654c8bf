import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.multi_task.fedem import Mixture, fedem
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch
from softmax_clients import TRAIN, examples, gradient, linear, losses, probabilities

BYTES = (3 * toy.WHOLE, 3 * toy.WHOLE)
CONFORMANCE = [Case("fedem", bytes=BYTES)]
RATE = 0.5


def shares(k, models, pi):
    """q of client k, [M, n]."""
    likelihood = np.array(
        [p * np.exp(-losses(k, w)) for p, w in zip(pi, models, strict=True)]
    )
    return likelihood / likelihood.sum(0)


def test_fedem_against_numpy():
    task, local = linear(), toy.full_batch(epochs=3, rate=RATE)
    method = fedem(task, local, components=2)
    states, _ = toy.run_rounds(method, task, local, TRAIN, rounds=3, cohort=5)
    models = np.asarray(states[0].server["head"], np.float64)
    pi = np.full((8, 2), 0.5)
    for state in states[1:]:
        ids, uploads = np.asarray(state.cohort), []
        for k in ids:
            q = shares(k, models, pi[k])
            uploads.append(
                [
                    toy.descend(w, lambda w, k=k, q=q: gradient(k, w, q), 3, RATE)
                    for w, q in zip(models, q, strict=True)
                ]
            )
            pi[k] = q.mean(1)
        models = np.average(uploads, axis=0, weights=np.array(toy.SIZES)[ids])
        np.testing.assert_allclose(state.server["head"], models, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.clients, pi, rtol=1e-4, atol=1e-5)
    assert np.abs(pi - 0.5).max() > 0.1


def trained(method, models, pi, k=1):
    data = toy.one(TRAIN, k)
    turn = toy.turn(steps=4)
    server = {"head": jnp.asarray(models, jnp.float32)}
    return method.train(turn, server, jnp.asarray(pi), data)


@pytest.mark.slow
def test_a_weight_of_one_stays_and_trains_its_model_alone():
    """A client of a known cluster: the other model's examples count nothing."""
    method = fedem(linear(), toy.full_batch(rate=RATE), components=2)
    models = np.random.default_rng(0).normal(size=(2, 3, 3))
    pi, upload, _ = trained(method, models, [0.0, 1.0])
    np.testing.assert_array_equal(pi, [0, 1])
    np.testing.assert_array_equal(upload["head"][0], np.float32(models[0]))
    wanted = toy.descend(models[1], lambda w: gradient(1, w), 4, RATE)
    np.testing.assert_allclose(upload["head"][1], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_equal_models_take_a_share_of_fedavgs_step():
    """Of noisy minibatches, which all models see alike."""
    local = toy.full_batch(rate=RATE)._replace(batch_size=4)
    w = np.random.default_rng(0).normal(size=(3, 3))
    pi, upload, _ = trained(fedem(linear(), local), [w, w, w], np.full(3, 1 / 3))
    np.testing.assert_allclose(pi, 1 / 3, rtol=1e-6)
    slow = fedem(linear(), local._replace(learning_rate=RATE / 3), components=1)
    _, alone, _ = trained(slow, [w], [1.0])
    for each in upload["head"]:
        np.testing.assert_allclose(each, alone["head"][0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_steps_of_a_newcomers_weights_raise_its_likelihood():
    models = np.random.default_rng(0).normal(size=(3, 3, 3))
    server = {"head": jnp.asarray(models, jnp.float32)}
    pi, before = np.full(3, 1 / 3), -np.inf
    for steps in range(4):
        method = fedem(linear(), toy.full_batch(), newcomer_steps=steps)
        mixture = method.newcomer(toy.turn(), server, toy.one(TRAIN, 1))
        np.testing.assert_allclose(mixture.pi, pi, rtol=1e-4)
        likelihood = sum(
            p * np.exp(-losses(1, w)) for p, w in zip(pi, models, strict=True)
        )
        assert np.log(likelihood).sum() > before
        before = np.log(likelihood).sum()
        pi = shares(1, models, pi).mean(1)


def test_a_client_is_evaluated_with_the_mixture_of_probabilities():
    method = fedem(linear(), toy.full_batch(), components=2)
    models = np.random.default_rng(0).normal(size=(2, 3, 3))
    mixture = Mixture(
        {"head": jnp.asarray(models, jnp.float32)}, jnp.asarray([0.3, 0.7])
    )
    logits = method.predict(mixture, Batch.full(jnp.asarray(examples(1)[0])))
    wanted = 0.3 * probabilities(1, models[0]) + 0.7 * probabilities(1, models[1])
    np.testing.assert_allclose(np.exp(logits), wanted, rtol=1e-4)


def test_a_client_without_examples_keeps_its_weights():
    method = fedem(linear(), toy.full_batch(), components=2)
    data = toy.one(TRAIN, 1)._replace(size=jnp.int32(0))
    models = {"head": jnp.ones((2, 3, 3))}
    pi, _, _ = method.train(toy.turn(), models, jnp.asarray([0.3, 0.7]), data)
    np.testing.assert_array_equal(pi, np.float32([0.3, 0.7]))


@pytest.mark.parametrize("options", [{"components": 0}, {"newcomer_steps": -1}])
def test_wrong_options_are_refused(options):
    (name, value), *_ = options.items()
    with pytest.raises(ValueError, match=f"{name} is {value}; expected at least"):
        fedem(linear(), toy.full_batch(), **options)
