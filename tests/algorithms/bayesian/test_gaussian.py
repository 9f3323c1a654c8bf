import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.algorithms.bayesian._gaussian import Ensemble, Gaussian
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.types import Batch

KEY = jax.random.key(0)
M_Q, S_Q = np.array([0.5, -1.0, 2.0]), np.array([0.3, 1.5, 4.0])
M_P, S_P = np.array([0.0, 2.0, 2.0]), np.array([1.0, 0.5, 4.0])


def of(mean, std):
    """N(mean, std^2) over two leaves."""
    spread = np.log(np.expm1(std))
    return Gaussian(toy.unflat(mean), toy.unflat(spread))


def test_a_spread_of_any_number_is_a_positive_std():
    q = Gaussian(toy.unflat(M_Q), toy.unflat([-300.0, 0.0, 80.0]))
    np.testing.assert_allclose(
        toy.flat(gaussian.std(q)), [gaussian.LEAST, np.log(2), 80], rtol=1e-6
    )


@pytest.mark.parametrize("std", [1e-12, 0.3, 1.0, 90.0])
def test_around_has_one_std(std):
    q = gaussian.around(toy.unflat(M_Q), std)
    np.testing.assert_allclose(toy.flat(gaussian.std(q)), std, rtol=1e-5)
    assert gaussian.size(q) == 3


def divergence(m_q, s_q, m_p, s_p):
    """KL of one-dimensional Gaussians, summed."""
    square = (s_q**2 + (m_q - m_p) ** 2) / (2 * s_p**2)
    return np.sum(np.log(s_p / s_q) + square - 0.5)


KL = jax.jit(jax.value_and_grad(gaussian.kl, (0, 1)))


def test_kl_against_its_formula_and_its_slopes():
    q, p = of(M_Q, S_Q), of(M_P, S_P)
    value, (slope, _) = KL(q, p)
    assert float(value) == pytest.approx(divergence(M_Q, S_Q, M_P, S_P), rel=1e-5)
    np.testing.assert_allclose(
        toy.flat(slope.mean), (M_Q - M_P) / S_P**2, rtol=1e-5, atol=1e-6
    )
    of_std = S_Q / S_P**2 - 1 / S_Q
    sigmoid = 1 - np.exp(-S_Q)  # of softplus' inverse of S_Q
    np.testing.assert_allclose(
        toy.flat(slope.spread), of_std * sigmoid, rtol=1e-4, atol=1e-6
    )


def test_kl_is_zero_of_equals_alone_where_its_slope_is_zero():
    q = of(M_Q, S_Q)
    value, slopes = KL(q, q)
    assert float(value) == pytest.approx(0, abs=1e-6)
    for leaf in toy.arrays(slopes):
        np.testing.assert_allclose(leaf, 0, atol=1e-6)
    assert float(KL(q, of(M_P, S_P))[0]) > 1


def test_kl_of_one_std_is_half_a_square_distance():
    q, p = (gaussian.around(toy.unflat(mean), 0.2) for mean in (M_Q, M_P))
    expected = ((M_Q - M_P) ** 2).sum() / (2 * 0.2**2)
    assert float(KL(q, p)[0]) == pytest.approx(expected, rel=1e-5)


def test_the_nearest_of_two_has_their_moments():
    """The mean of the means; of the variances with the squares of the distances."""
    mean = (M_Q + M_P) / 2
    variance = (S_Q**2 + S_P**2 + (M_Q - mean) ** 2 + (M_P - mean) ** 2) / 2
    nearest = of(mean, variance**0.5)
    pulls = [KL(each, nearest)[1][1] for each in (of(M_Q, S_Q), of(M_P, S_P))]
    for leaf in toy.arrays(tree.add(*pulls)):
        np.testing.assert_allclose(leaf, 0, atol=1e-5)


def test_kl_is_the_mean_of_the_ratio_of_densities():
    """Of 20,000 draws of q, with densities by NumPy."""
    q = of(M_Q, S_Q)
    x = toy.flat(gaussian.draws(q, KEY, 20_000))
    log_q, log_p = (
        (-((x - m) ** 2) / (2 * s**2) - np.log(s)).sum(1)
        for m, s in ((M_Q, S_Q), (M_P, S_P))
    )
    found = float(KL(q, of(M_P, S_P))[0])
    assert (log_q - log_p).mean() == pytest.approx(found, rel=0.03)


def test_draws_have_the_moments_of_the_gaussian():
    x = toy.flat(gaussian.draws(of(M_Q, S_Q), KEY, 20_000))
    np.testing.assert_allclose(x.mean(0), M_Q, atol=4 * 4 / np.sqrt(20_000))
    np.testing.assert_allclose(x.std(0), S_Q, rtol=0.03)
    assert np.abs(np.corrcoef(x.T) - np.eye(3)).max() < 0.03


def test_an_expectation_has_reparametrised_slopes():
    """Of |x|^2: 2 mean, and 2 std through the spread."""
    square = lambda x: tree.square_norm(x)  # noqa: E731
    slope_of = jax.value_and_grad(gaussian.expectation, 1)
    value, slope = slope_of(square, of(M_Q, S_Q), KEY, 20_000)
    assert float(value) == pytest.approx((M_Q**2 + S_Q**2).sum(), rel=0.03)
    np.testing.assert_allclose(toy.flat(slope.mean), 2 * M_Q, atol=0.15)
    of_std = 2 * S_Q * (1 - np.exp(-S_Q))
    np.testing.assert_allclose(toy.flat(slope.spread), of_std, rtol=0.05)


def test_sums_of_natural_parameters_are_products():
    factors = gaussian.natural(of(M_Q, S_Q)), gaussian.natural(of(M_P, S_P))
    product = tree.add(*factors)
    found = gaussian.gaussian(product)
    precision = S_Q**-2 + S_P**-2
    np.testing.assert_allclose(toy.flat(product.precision), precision, rtol=1e-5)
    np.testing.assert_allclose(
        toy.flat(found.mean), (M_Q / S_Q**2 + M_P / S_P**2) / precision, rtol=1e-5
    )
    np.testing.assert_allclose(
        toy.flat(gaussian.std(found)), precision**-0.5, rtol=1e-5
    )
    quotient = gaussian.gaussian(tree.sub(product, factors[1]))
    toy.assert_close(quotient, of(M_Q, S_Q), 1e-4)
    surer = gaussian.natural(of(M_Q, S_Q), factors[1].precision)
    wanted = gaussian.natural(of(M_Q, np.minimum(S_Q, S_P)))
    toy.assert_close(surer, wanted)


def test_an_ensemble_predicts_the_mean_of_probabilities():
    task = toy.classifier()
    mean = task.init(KEY)
    batch = Batch.full(jnp.asarray(np.random.default_rng(0).normal(size=(5, 3))))
    in_head = tree.matches(task.groups, "head")
    head, body = tree.split(mean, in_head)
    predict = gaussian.predicting(task, task.predict)
    q = gaussian.around(head, 0.7)
    ensemble = gaussian.predictive(q, body, KEY, 4)
    assert isinstance(ensemble, Ensemble)
    by_draw = [
        jax.nn.softmax(
            task.predict(tree.merge(body, tree.take(ensemble.drawn, i)), batch)
        )
        for i in range(4)
    ]
    found = np.exp(predict(ensemble, batch))
    np.testing.assert_allclose(found, np.mean(by_draw, 0), rtol=1e-5)
    at_mean = gaussian.predictive(q, body, KEY, 0)
    toy.assert_same(at_mean, mean)
    toy.assert_same(predict(at_mean, batch), task.predict(mean, batch))
    assert np.abs(found - jax.nn.softmax(task.predict(mean, batch))).max() > 1e-3


def test_statistics_are_not_drawn_and_take_the_mean_change():
    """The gradient is the mean of those at three draws, each alone."""
    count = 3
    body = nn.Sequential([nn.Dense(4), nn.BatchNorm(momentum=0.9), nn.relu])
    task = toy.traced_once(models.task(models.Network(body, nn.Dense(3)), (3,)))
    q = gaussian.around(task.init(KEY), 0.5)
    x = np.random.default_rng(0).normal(size=(6, 3))
    batch = Batch.full(jnp.asarray(x, jnp.float32))

    @jax.jit
    def slopes(q):
        loss = lambda params: task.loss(params, batch, KEY)  # noqa: E731
        found = jax.grad(lambda q: gaussian.expectation(loss, q, KEY, count))(q)
        return found, jax.lax.map(jax.grad(loss), gaussian.draws(q, KEY, count))

    found, each = slopes(q)
    mean = jax.tree.map(lambda leaf: leaf.mean(0), each)
    toy.assert_close(found.mean, mean)
    statistics = [name for name in tree.paths(q.mean) if "batch_stats" in name]
    assert len(statistics) == 2
    assert not any("batch_stats" in name for name in tree.paths(q.spread))
    factor = gaussian.natural(q)
    for name in statistics:
        kept, shift = tree.paths(q.mean)[name], tree.paths(factor.shift)[name]
        np.testing.assert_array_equal(kept, shift)
        assert np.abs(tree.paths(found.mean)[name]).max() > 1e-3
    toy.assert_close(gaussian.gaussian(factor), q, 1e-4)
