"""Curvature, against dense Hessians in NumPy on clients with 3 to 20 examples."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.flatten_util import ravel_pytree

from pfljax import landscape
from pfljax import models as pfljax_models
from pfljax.conformance import toy
from pfljax.core.types import Batch
from pfljax.landscape import curvature, objective
from pfljax.landscape.planes import pooled

KEY = jax.random.key(5)
D = 31  # parameters of the classifier
ALL = {"steps": D, "batch_size": 8}
DATA = toy.ragged()[0]
# The parameters of each layer; the body's leaves come first.
BLOCKS = {"body/layers_1": np.arange(D) < 16, "head": np.arange(D) >= 16}


@cache
def models():
    """A model of each of the 8 clients, stacked."""
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: rng.normal(0, 0.7, (8, *leaf.shape)).astype(np.float32),
        jax.eval_shape(toy.classifier().init, KEY),
    )


def model(k):
    return jax.tree.map(lambda leaf: leaf[k], models())


def padded(k):
    """(x, y, weight) of client k, or for None of all examples, as 76 examples."""
    data = pooled(DATA) if k is None else toy.one(DATA, k)
    index = np.arange(data.offset, data.offset + data.size)
    index = np.resize(index, sum(toy.SIZES))
    weight = (np.arange(len(index)) < data.size) / np.float32(data.size)
    x, y = (np.asarray(leaf)[index] for leaf in data.examples)
    return x, y, weight


def loss(w, x, y, weight):
    """The loss of flat parameters, in the words of a textbook."""
    unravel = ravel_pytree(model(0))[1]
    p = jax.nn.softmax(toy.classifier().predict(unravel(w), Batch.full(x)))
    return -(weight * jnp.log(p[jnp.arange(len(y)), y])).sum()


hessian = jax.jit(jax.hessian(loss))
value_and_grad = jax.jit(jax.value_and_grad(loss))


def vector(k):
    """The model of client k, flat; for None the first."""
    return np.asarray(ravel_pytree(model(k or 0))[0])


@cache
def dense(k):
    """(eigenvalues, vectors in columns, Hessian), the greatest eigenvalue first.

    Of client k, or for None of the first model on the examples of all.
    """
    found = np.asarray(hessian(vector(k), *padded(k)), np.float64)
    values, vectors = np.linalg.eigh(found)
    return values[::-1], vectors[:, ::-1], found


def flat(vectors, k=...):
    """Eigenvectors as rows, [k, D]."""
    leaves = [np.asarray(leaf)[k] for leaf in jax.tree.leaves(vectors)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def check_eigen(values, vectors, k):
    true, columns, _ = dense(k)
    np.testing.assert_allclose(values, true[: len(values)], atol=2e-6)
    cosines = np.abs(np.sum(vectors * columns[:, : len(values)].T, axis=1))
    np.testing.assert_allclose(cosines, 1, atol=1e-4)


@cache
def eigen_of_all():
    return landscape.eigen(
        toy.classifier(), models(), DATA, KEY, top=3, bottom=2, **ALL
    )


def test_eigenpairs_of_every_client_are_those_of_its_hessian():
    found = eigen_of_all()
    assert found.values.shape == found.residuals.shape == (8, 5)
    assert found.residuals.max() < 1e-5
    for k in range(8):
        check_eigen(found.values[k, :3], flat(found.vectors, k)[:3], k)
        smallest, columns = dense(k)[0][-2:], dense(k)[1][:, -2:]
        np.testing.assert_allclose(found.values[k, 3:], smallest, atol=2e-6)
        if smallest[0] > smallest[1] + 1e-3:  # otherwise the two may be turned
            cosines = np.abs(np.sum(flat(found.vectors, k)[3:] * columns.T, axis=1))
            np.testing.assert_allclose(cosines, 1, atol=1e-3)


def test_eigenpairs_of_pooled_examples():
    found = landscape.eigen(toy.classifier(), model(0), pooled(DATA), KEY, top=3, **ALL)
    check_eigen(found.values, flat(found.vectors), None)
    assert jax.tree.structure(found.vectors) == jax.tree.structure(model(0))


@pytest.mark.slow
def test_residuals_bound_the_errors_of_few_steps():
    found = landscape.eigen(toy.classifier(), model(1), toy.one(DATA, 1), KEY, steps=8)
    values, _, own = dense(1)
    for value, v, bound in zip(
        found.values, flat(found.vectors), found.residuals, strict=True
    ):
        assert np.linalg.norm(own @ v - value * v) == pytest.approx(bound, rel=1e-3)
        assert np.abs(values - value).min() <= bound
    assert found.residuals.max() > 1e-3  # 8 steps are too few: the bound says so


def test_lanczos_finds_every_eigenvalue_once_where_the_space_ends_early():
    eigenvalues = np.r_[5.0, 2.0, 2.0, np.zeros(7), -1.0].astype(np.float32)
    drawn = np.random.default_rng(0).normal(size=(11, 11))
    q = np.linalg.qr(drawn)[0].astype(np.float32)
    matrix = q @ np.diag(eigenvalues) @ q.T
    start = jax.random.normal(KEY, (11,))
    found = curvature.lanczos(lambda v: matrix @ v, start, 11, KEY)
    tridiagonal, basis, _ = map(np.asarray, found)
    np.testing.assert_allclose(basis @ basis.T, np.eye(11), atol=1e-5)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(tridiagonal), np.sort(eigenvalues), atol=1e-5
    )
    zero = curvature.lanczos(jnp.zeros_like, start, 4, KEY)[0]
    np.testing.assert_array_equal(zero, np.zeros((4, 4)))


def test_the_trace_lies_within_its_standard_error():
    probes = 400
    found = landscape.trace(toy.classifier(), model(1), DATA, KEY, probes=probes)
    assert found.value.shape == found.error.shape == (8,)
    own = dense(1)[2]
    # The variance of v'Hv for signs v: twice the squares off the diagonal.
    off = own - np.diag(np.diag(own))
    error = np.sqrt(2 * (off**2).sum() / probes)
    assert found.error[1] == pytest.approx(error, rel=0.15)
    assert abs(found.value[1] - np.trace(own)) < 3 * found.error[1]


def test_clients_draw_probes_of_their_own():
    """Of one model on one client's examples, 8 traces are 8 draws."""
    same = jax.tree.map(lambda leaf: np.stack([leaf[0]] * 8), models())
    found = landscape.trace(toy.classifier(), same, toy.one(DATA, 1), KEY, probes=4)
    assert len(set(found.value.tolist())) == 8


def test_the_traces_of_layers_are_those_of_their_blocks_and_add_up():
    own, probes = toy.one(DATA, 1), 400
    whole = landscape.trace(toy.classifier(), model(1), own, KEY, probes=probes)
    assert list(whole.layers) == list(BLOCKS)
    hessian = dense(1)[2]
    for name, block in BLOCKS.items():
        true = np.trace(hessian[np.ix_(block, block)])
        found = whole.layers[name]
        assert abs(found.value - true) < 3 * found.error
    added = sum(trace.value for trace in whole.layers.values())
    assert added == pytest.approx(whole.value, rel=1e-5)


def loss64(w, x, y):
    """The loss of flat parameters in float64: biases before kernels."""
    b, first, c, head = jnp.split(w, [4, 16, 19])
    hidden = jax.nn.relu(x @ first.reshape(3, 4) + b)
    p = jax.nn.log_softmax(hidden @ head.reshape(4, 3) + c)
    return -p[jnp.arange(len(y)), y].mean()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "head" else ())
        for name in BLOCKS
    ],
)
def test_eigenvalues_of_a_layer_are_those_of_its_block(name):
    own, block = toy.one(DATA, 1), BLOCKS[name]
    x, y = (leaf[own.offset : own.offset + own.size] for leaf in own.examples)
    with jax.enable_x64(True):
        w, x = (jnp.asarray(np.float64(each)) for each in (vector(1), x))
        hessian = np.asarray(jax.hessian(loss64)(w, x, jnp.asarray(y)))
    assert hessian.dtype == np.float64
    values, columns = np.linalg.eigh(hessian[np.ix_(block, block)])
    given = {"top": 1, "bottom": 1, "layer": name, "steps": int(block.sum())}
    found = landscape.eigen(toy.classifier(), model(1), own, KEY, **given)
    np.testing.assert_allclose(found.values, values[[-1, 0]], atol=2e-6)
    vectors = flat(found.vectors)
    assert not vectors[:, ~block].any()
    assert abs(vectors[0, block] @ columns[:, -1]) == pytest.approx(1, abs=1e-4)
    with pytest.raises(ValueError, match=f"2 to {block.sum()}"):
        landscape.eigen(toy.classifier(), model(1), own, KEY, **given | {"steps": D})


def test_running_statistics_are_no_parameters():
    """A density has no eigenvalue 0 for each of them, and no direction moves them."""
    body = nn.Sequential([nn.Dense(2), nn.BatchNorm(), nn.relu])
    task = pfljax_models.task(pfljax_models.Network(body, nn.Dense(3)), (3,))
    params = task.init(KEY)
    fixed = objective.find_fixed(task)
    own = objective.make_objective(task.predict, params, toy.one(DATA, 1), 8, fixed)
    count = (3 + 1) * 2 + 2 * 2 + (2 + 1) * 3
    assert len(own.weights) == objective.num_parameters(task) == count
    direction = own.unravel(jnp.ones(count))
    running = direction["body"]["layers_1"].pop("batch_stats")
    assert jax.tree.map(np.ndarray.tolist, jax.device_get(running)) == {
        "mean": [0, 0],
        "var": [0, 0],
    }
    assert all(leaf.all() for leaf in jax.tree.leaves(direction))


def test_the_density_has_the_moments_of_the_spectrum():
    data = toy.one(DATA, 1)
    found = landscape.density(
        toy.classifier(), model(1), data, KEY, probes=100, steps=12, sigma=0.02
    )
    values = dense(1)[0]
    assert found.weights.sum(-1) == pytest.approx(1, abs=1e-5)
    for power in (1, 2, 3):
        each = (found.weights * found.nodes**power).sum(-1)  # v'H^p v / D
        error = each.std() / 10
        assert abs(each.mean() - (values**power).mean()) < 3 * error
    step = found.grid[1] - found.grid[0]
    assert found.density.sum() * step == pytest.approx(1, abs=1e-4)
    mean = (found.grid * found.density).sum() * step
    assert mean == pytest.approx((found.weights * found.nodes).sum(-1).mean(), abs=1e-4)
    second = (found.grid**2 * found.density).sum() * step
    assert second == pytest.approx(
        (found.weights * found.nodes**2).sum(-1).mean() + 0.02**2, rel=1e-3
    )


def test_a_nodes_quadrature_is_that_of_its_probe():
    key = jax.random.split(KEY, 2)[1]
    v = np.asarray(jax.random.rademacher(key, (D,), jnp.float32))
    found = landscape.density(
        toy.classifier(), model(1), toy.one(DATA, 1), KEY, probes=2, steps=6
    )
    own = dense(1)[2]
    for power in range(8):  # 6 nodes are exact for polynomials of degree 11
        quadrature = (found.weights[1] * found.nodes[1].astype(float) ** power).sum()
        exact = v @ np.linalg.matrix_power(own, power) @ v / D
        assert quadrature == pytest.approx(exact, rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_stacked_clients_are_as_one_by_one_whatever_the_batch():
    task, together = toy.classifier(), eigen_of_all()
    spread = landscape.eigen(task, models(), DATA, KEY, top=3, steps=D, batch_size=7)
    np.testing.assert_allclose(spread.values, together.values[:, :3], atol=2e-6)
    for k in (0, 3):
        alone = landscape.eigen(
            task, model(k), toy.one(DATA, k), KEY, top=3, steps=D, batch_size=64
        )
        np.testing.assert_allclose(alone.values, together.values[k, :3], atol=2e-6)


def test_a_client_without_examples_is_not_a_number():
    data = DATA._replace(size=DATA.size.at[4].set(0))
    found = landscape.density(
        toy.classifier(), model(0), data, KEY, probes=2, steps=4, sigma=0.1
    )
    assert np.isfinite(found.grid).all()
    assert np.isnan(found.density).all(1).tolist() == [k == 4 for k in range(8)]


def test_a_second_call_traces_nothing():
    calls = []
    own = toy.classifier()

    def predict(params, batch):
        calls.append(batch.x.shape)
        return own.predict(params, batch)

    task = own._replace(predict=predict)

    def measure(seed):
        landscape.eigen(task, model(seed), DATA, jax.random.key(seed), steps=3)

    measure(0)
    traced = len(calls)
    assert traced
    measure(1)
    assert len(calls) == traced


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"params": {"head": {"bias": np.zeros(3)}}}, "not parameters of this task"),
        ({"params": "three"}, "params 3, data 8"),
        ({"steps": D + 1}, "steps is 32, expected a whole number, 2 to 31"),
        ({"top": 4, "steps": 3}, "steps is 3, expected a whole number, 4"),
        ({"top": 0}, "top is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_what_cannot_be_is_refused(wrong, said):
    given = {"params": model(0), "data": DATA, "key": KEY} | wrong
    if given["params"] == "three":  # models of 3 of the 8 clients
        given["params"] = jax.tree.map(lambda leaf: leaf[:3], models())
    with pytest.raises(ValueError, match=said):
        landscape.eigen(toy.classifier(), **given)


def test_what_the_others_cannot_do_is_refused():
    task, own = toy.classifier(), toy.one(DATA, 0)
    with pytest.raises(ValueError, match="probes is 1"):
        landscape.trace(task, model(0), own, KEY, probes=1)
    with pytest.raises(ValueError, match="sigma is 0"):
        landscape.density(task, model(0), own, KEY, sigma=0, steps=3)


@pytest.mark.slow
def test_many_models_may_share_the_examples_of_one_client():
    task, own = toy.classifier(), toy.one(DATA, 1)
    all_, one = (
        landscape.eigen(task, params, own, KEY, steps=D, top=1).values
        for params in (models(), model(3))
    )
    np.testing.assert_allclose(all_[3], one, rtol=1e-4)
    assert all_.shape == (8, 1)


def test_the_objective_is_the_loss_of_all_examples():
    data = toy.one(DATA, 6)
    task = toy.classifier()
    fixed = objective.find_fixed(task)
    own = objective.make_objective(task.predict, model(6), data, 5, fixed)
    true = value_and_grad(vector(6), *padded(6))
    v = jax.random.normal(KEY, (D,))

    @jax.jit
    def both(v):
        return own.value_and_grad(own.weights), own.curvature(v)

    (value, gradient), product = both(v)
    assert float(value) == pytest.approx(float(true[0]), rel=1e-5)
    np.testing.assert_allclose(gradient, true[1], atol=1e-6)
    np.testing.assert_allclose(product, dense(6)[2] @ v, atol=1e-5)


def test_the_figure_shows_the_density_and_marks_eigenvalues():
    grid = np.linspace(-1, 4, 50)
    nodes = np.zeros((1, 1))
    spectrum = landscape.Density(grid, np.exp(-((grid - 1) ** 2)), nodes, nodes)
    (axes,) = landscape.draw_spectrum("Ditto", spectrum, [3.0, 2.0]).axes
    assert axes.get_yscale() == "log"
    curve, *marks = axes.get_lines()
    assert curve.get_label() == "Ditto"
    np.testing.assert_array_equal(curve.get_ydata(), spectrum.density)
    assert [line.get_xdata()[0] for line in marks] == [3.0, 2.0]
    assert {line.get_color() for line in marks} == {curve.get_color()}
    low, high = axes.get_ylim()
    assert high / low == pytest.approx(2e6)
