import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import channel
from pfljax.conformance import toy
from pfljax.core import aggregation
from traced import equations

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 2, 2))
WEIGHT = np.array([3.0, 0, 1, 5, 0, 2, 4])
HERE = WEIGHT > 0


def value_of(kind):
    """The value that a channel puts in the place of every upload."""

    def reducer(uploads, weight):
        cohort = toy.cohort(weight > 0)
        values, _ = kind().receive((), cohort.key, uploads, (), cohort)
        return jax.tree.map(lambda leaf: leaf[0], values)

    return reducer


MEDIAN = value_of(channel.median())


def reduced(reducer, weight=WEIGHT, x=X, y=Y):
    uploads = {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)}
    return jax.jit(reducer)(uploads, jnp.asarray(weight, jnp.float32))


def trimmed(leaf):
    """Mean without the largest and the smallest of five."""
    return np.sort(leaf[HERE], axis=0)[1:-1].mean(0)


@pytest.mark.parametrize(
    ("reducer", "oracle"),
    [
        (aggregation.mean, lambda leaf: np.average(leaf, axis=0, weights=WEIGHT)),
        (aggregation.weighted_sum, lambda leaf: np.tensordot(WEIGHT, leaf, 1)),
        (MEDIAN, lambda leaf: np.median(leaf[HERE], axis=0)),
        (value_of(channel.trimmed_mean(trim=0.0)), lambda leaf: leaf[HERE].mean(0)),
        (value_of(channel.trimmed_mean(trim=0.3)), trimmed),
        (
            value_of(channel.krum(byzantine=0, chosen=5)),
            lambda leaf: leaf[HERE].mean(0),
        ),
    ],
    ids=["mean", "total", "median", "trim 0", "trim 0.3", "krum of all"],
)
def test_reducers_against_numpy(reducer, oracle):
    found = reduced(reducer)
    np.testing.assert_allclose(found["x"], oracle(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["y"], oracle(Y), rtol=1e-5, atol=1e-6)


def test_the_median_of_an_even_number_is_the_middle():
    found = reduced(MEDIAN, weight=[1, 1, 0, 1, 1, 0, 0])
    np.testing.assert_allclose(
        found["x"], np.median(X[[0, 1, 3, 4]], axis=0), rtol=1e-5
    )


def krum_oracle(flat, byzantine, chosen):
    """Blanchard et al.: scores over the m - f - 2 nearest others."""
    m = len(flat)
    square = ((flat[:, None] - flat[None]) ** 2).sum(-1)
    near = np.sort(square + np.diag([np.inf] * m), axis=1)[:, : m - byzantine - 2]
    return np.argsort(near.sum(1))[:chosen]


@pytest.mark.parametrize("chosen", [1, 2])
@pytest.mark.parametrize("weight", [np.ones(7), WEIGHT])
def test_krum_against_numpy(chosen, weight):
    here = np.flatnonzero(weight)
    krum = jax.jit(value_of(channel.krum(byzantine=1, chosen=chosen)))
    for x in np.random.default_rng(1).normal(size=(20, 7, 2)).astype(np.float32):
        best = here[krum_oracle(x[here], byzantine=1, chosen=chosen)]
        found = krum({"a": x[:, :1], "b": x[:, 1:]}, jnp.asarray(weight))
        np.testing.assert_allclose(found["a"], x[best, :1].mean(0), rtol=1e-5)
        np.testing.assert_allclose(found["b"], x[best, 1:].mean(0), rtol=1e-5)


@pytest.mark.parametrize(
    "reducer",
    [
        MEDIAN,
        value_of(channel.trimmed_mean(trim=0.2)),
        value_of(channel.krum(byzantine=1)),
    ],
)
def test_robust_reducers_reject_an_outlier(reducer):
    attacked = X.copy()
    attacked[3] = 1e6
    found = reduced(reducer, x=attacked)
    assert np.abs(found["x"]).max() < np.abs(X).max()
    assert np.abs(reduced(aggregation.mean, x=attacked)["x"]).max() > 1e5


@pytest.mark.parametrize("trim", [-0.1, 0.5, 1.0])
def test_a_wrong_share_to_trim(trim):
    with pytest.raises(ValueError, match=r"0 <= trim < 0\.5"):
        channel.trimmed_mean(trim=trim)


def test_elements_are_averaged_over_those_who_hold_them():
    counts = RNG.integers(0, 3, X.shape).astype(np.float32)
    counts[:, 1] = 0
    default = np.float32([7, 8, 9])
    found = aggregation.counted_mean(jnp.asarray(X), jnp.asarray(counts), default)
    expected = [
        np.average(X[:, i], weights=counts[:, i]) if counts[:, i].any() else default[i]
        for i in range(3)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found[1] == 8


def test_segments_are_averaged_and_empty_ones_stay():
    segment = np.array([0, 2, 2, 0, 2, 3, 3])
    member = np.eye(4)[segment] * WEIGHT[:, None]
    default = np.full((4, 2, 2), 5.0)
    found = aggregation.segment_mean(jnp.asarray(Y), jnp.asarray(member), default)
    for j in (0, 2, 3):
        own = segment == j
        expected = np.average(Y[own], axis=0, weights=WEIGHT[own])
        np.testing.assert_allclose(found[j], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], default[1])


@pytest.mark.parametrize("name", ["mean", "segment_mean"])
def test_sums_of_uploads_are_exact_on_every_platform(name):
    """An accelerator's default would round what clients send to a few bits."""
    uploads = {"w": jnp.ones((4, 3))}
    if name == "mean":
        traced = jax.make_jaxpr(aggregation.mean)(uploads, jnp.ones(4))
    else:
        default = {"w": jnp.ones((2, 3))}
        member = jnp.ones((4, 2))
        traced = jax.make_jaxpr(aggregation.segment_mean)(uploads, member, default)
    found = [e for e in equations(traced.jaxpr) if e.primitive.name == "dot_general"]
    highest = (jax.lax.Precision.HIGHEST,) * 2
    assert [product.params["precision"] for product in found] == [highest]


def test_the_largest_come_first_and_the_absent_last():
    cohort = toy.cohort([1, 0, 1, 1, 1], 9, weight=[2.0, 9, 5, 2, 0])
    cohort = cohort._replace(ids=jnp.array([7, 1, 3, 2, 4]))
    found, in_order = aggregation.largest_first(jnp.arange(5), cohort)
    # Of 2 rows each the smaller id; who has none is there, and before the absent.
    np.testing.assert_array_equal(found, [2, 3, 0, 4, 1])
    np.testing.assert_array_equal(in_order.ids, [3, 2, 7, 4, 1])
    np.testing.assert_array_equal(in_order.mask, [1, 1, 1, 1, 0])
    np.testing.assert_array_equal(in_order.weight, [5, 2, 2, 0, 9])


def test_examples_of_a_class_are_averaged_by_what_clients_have_of_it():
    rows = RNG.normal(size=(3, 3, 5))
    counts = jnp.float32([[6, 0, 0], [2, 0, 5], [7, 1, 7]])
    weight = jnp.float32([1, 2, 0])
    found = aggregation.mean_by_class(jnp.float32(rows), counts, weight)
    wanted = [
        (6 * rows[0, 0] + 4 * rows[1, 0]) / 10,
        (rows[0, 1] + 2 * rows[1, 1]) / 3,
        rows[1, 2],
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
