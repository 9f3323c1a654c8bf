import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.conformance import toy
from pfljax.core.minibatches import take_examples
from pfljax.selection.cmab import composition, divergence
from selecting import CLIENTS, cohort_of, draws, made, public

CLASSES = 3
LINEAR = toy.linear()


def linear_models(count, seed=0):
    """Logistic regressions, stacked: kernel [3, 3] and bias [3]."""
    params = LINEAR.init(jax.random.key(0))
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=(count, *leaf.shape)), jnp.float32),
        params,
    )


def weights_of(models, m):
    """(kernel, bias) of model m, whose kernel is kept by outputs."""
    leaves = {leaf[m].ndim: np.asarray(leaf[m]) for leaf in jax.tree.leaves(models)}
    return leaves[2].T, leaves[1]


def rows_of_server():
    data = public()
    chosen = slice(2, 8)
    return np.asarray(data.examples.x)[chosen], np.asarray(data.examples.y)[chosen]


def by_hand(kernel, bias, beta):
    """R of a logistic regression, whose gradient on a class's examples is known."""
    x, y = rows_of_server()
    exponents = []
    for label in range(CLASSES):
        inputs = np.c_[x, np.ones(len(x))][y == label]
        logits = x[y == label] @ kernel + bias
        error = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        error[:, label] -= 1
        gradient = inputs.T @ error / len(inputs)
        exponents.append(beta / np.square(gradient).sum())
    shares = np.exp(np.minimum(exponents, 50) - np.minimum(np.max(exponents), 50))
    return shares / shares.sum()


def of_linear(cohort=2, **options):
    return made("cmab", cohort, task=LINEAR, **options)


def test_the_composition_is_that_of_the_last_layers_gradients():
    models = linear_models(4)
    batch = take_examples(public(), jnp.arange(6), jnp.ones(6))
    for m in range(4):
        model = jax.tree.map(lambda leaf, m=m: leaf[m], models)
        found = composition(LINEAR, model, batch, 0.7)
        wanted = by_hand(*weights_of(models, m), 0.7)
        np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_a_network_is_evaluated_with_its_last_layer():
    task = toy.classifier()
    batch = take_examples(public(), jnp.arange(6), jnp.ones(6))
    params = task.init(jax.random.key(3))
    squares = []
    for label in range(CLASSES):
        alone = batch._replace(mask=(batch.y == label) * 1.0)
        grads = jax.grad(lambda p, b=alone: task.loss(p, b, None))(params)
        parts = zip(jax.tree.leaves(grads), jax.tree.leaves(task.groups), strict=True)
        squares.append(sum((g**2).sum() for g, group in parts if group == "head"))
    wanted = jax.nn.softmax(jnp.minimum(1 / jnp.array(squares), 50))
    np.testing.assert_allclose(composition(task, params, batch, 1.0), wanted, rtol=1e-4)


def test_rewards_replayed():
    """Means that forget, and pulls, over rounds in which some do not report."""
    select = of_linear(beta=0.5, memory=0.8)
    observe = jax.jit(select.observe)
    state = select.init()
    rewards = {k: [] for k in range(CLIENTS)}
    shares = np.full((CLIENTS, CLASSES), 1 / CLASSES)
    for number in range(6):
        ids = [number % 3, 4]
        mask = [1, number % 2]
        models = linear_models(2, number)
        before = state
        state = observe(state, models, None, cohort_of(ids, mask, number))
        for m, k in enumerate(ids):
            if mask[m]:
                shares[k] = by_hand(*weights_of(models, m), 0.5)
                divergent = (shares[k] * np.log(shares[k] * CLASSES)).sum()
                rewards[k].append(1 / divergent)
    assert int(before.round) == 5
    for k, of_client in rewards.items():
        assert state.pulls[k] == len(of_client)
        np.testing.assert_allclose(state.composition[k], shares[k], rtol=2e-3)
        if of_client:
            power = 0.8 ** np.arange(len(of_client))[::-1]
            wanted = (power * of_client).sum() / power.sum()
            found = state.reward[k] / state.weight[k]
            np.testing.assert_allclose(found, wanted, rtol=1e-2)


def greedy(state, cohort, alpha):
    """The choice in NumPy, where everybody was seen."""
    shares = np.asarray(state.composition, np.float64)
    bonus = alpha * np.sqrt(
        3 * np.log(int(state.round)) / (2 * np.asarray(state.pulls))
    )
    chosen = [int(np.argmax(np.asarray(state.reward / state.weight) + bonus))]
    while len(chosen) < cohort:
        scores = np.full(CLIENTS, -np.inf)
        for k in set(range(CLIENTS)) - set(chosen):
            mean = shares[[*chosen, k]].mean(0)
            scores[k] = bonus[k] - (mean * np.log(mean * CLASSES)).sum()
        chosen.append(int(np.argmax(scores)))
    return chosen


@pytest.mark.parametrize(
    "alpha",
    [0.2, *(pytest.param(alpha, marks=pytest.mark.slow) for alpha in (0.0, 5.0))],
)
def test_the_cohort_balances_its_classes(alpha):
    rng = np.random.default_rng(2)
    select = of_linear(4, alpha=alpha)
    for _ in range(4):
        state = select.init()._replace(
            round=jnp.int32(9),
            pulls=jnp.asarray(rng.integers(1, 6, CLIENTS), jnp.float32),
            reward=jnp.asarray(rng.uniform(1, 9, CLIENTS), jnp.float32),
            weight=jnp.asarray(rng.uniform(1, 3, CLIENTS), jnp.float32),
            composition=jnp.asarray(
                rng.dirichlet(np.ones(CLASSES) / 2 + 0.1, CLIENTS), jnp.float32
            ),
        )
        found = draws(select, state, 1)[0]
        np.testing.assert_array_equal(found, greedy(state, 4, alpha))


def test_where_all_are_alike_everybody_takes_part_equally_often():
    select = of_linear(3)
    choose, observe = jax.jit(select.choose), jax.jit(select.observe)
    model = jax.tree.map(lambda leaf: leaf[:1], linear_models(1))
    models = jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, 0), model)
    state, drawn = select.init(), []
    for number in range(8):
        ids = choose(state, jax.random.key(number))
        drawn += ids.tolist()
        state = observe(state, models, None, cohort_of(ids, round_=number))
        assert np.ptp(np.bincount(drawn, minlength=CLIENTS)) <= 1
    assert len(set(drawn)) == CLIENTS


def test_a_model_that_has_diverged_tells_nothing():
    models = jax.tree.map(lambda leaf: leaf * jnp.nan, linear_models(2))
    select = of_linear()
    state = select.observe(select.init(), models, None, cohort_of([0, 5]))
    np.testing.assert_allclose(state.composition, 1 / CLASSES, rtol=1e-6)
    assert np.isfinite(state.reward).all()


def test_an_absent_class_has_no_share_and_no_number_is_lost():
    shares = jnp.array([[0.5, 0.5, 0.0], [1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3]])
    wanted = [np.log(1.5), np.log(3), 1e-6]
    np.testing.assert_allclose(divergence(shares), wanted, rtol=1e-5)
    batch = take_examples(public(), jnp.arange(6), jnp.ones(6))
    batch = batch._replace(y=jnp.where(batch.y == 2, 0, batch.y))
    model = jax.tree.map(lambda leaf: leaf[0], linear_models(1))
    found = composition(LINEAR, model, batch, 1.0)
    assert found[2] == 0
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_public": 0}, "cmab needs examples at the server, and there"),
        ({"alpha": -1.0}, "alpha is -1.0; expected a finite number >= 0"),
        ({"beta": 0.0}, "beta is 0.0; expected a finite number > 0"),
        ({"memory": 1.5}, "memory is 1.5; expected a number from 0 to 1"),
        ({"cohort": 9}, "the cohort is 9, but 8 clients"),
    ],
)
def test_bandits_that_cannot_be(options, expected):
    with pytest.raises(ValueError, match=expected):
        made("cmab", **options)
