import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.meta_learning import _hypernetwork as hypernetwork
from pfljax.algorithms.meta_learning._hypernetwork import Hypernetwork
from pfljax.core import tree
from pfljax.core.perceptron import Layer
from pfljax.core.statistics import STATISTICS

KEY = jax.random.key(0)
PARAMS = {
    "norm": {"scale": jnp.ones(2), STATISTICS: {"mean": jnp.asarray([3.0, 4.0])}},
    "kernel": 5 * jax.random.normal(KEY, (2, 50)),
}


def vector(made):
    """The parameters that are made, and the statistics, in NumPy."""
    flat = [made["norm"]["scale"], made["kernel"].ravel()]
    return np.concatenate(flat), np.asarray(made["norm"][STATISTICS]["mean"])


def test_parameters_against_numpy():
    net = hypernetwork.init(KEY, 3, 6, PARAMS)
    v = jnp.asarray([0.5, -1, 2])
    z = np.asarray(v, np.float64)
    for number, (bias, kernel) in enumerate(net.layers):
        z = z @ kernel + bias
        if number < 3:
            z = np.maximum(z, 0)
    parameters, statistics = vector(hypernetwork.apply(net, v))
    kernel = np.c_[net.kernel["norm"]["scale"], net.kernel["kernel"].reshape(6, -1)]
    wanted = vector(PARAMS)[0] + z @ kernel
    np.testing.assert_allclose(parameters, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(statistics, [3, 4])


def test_slopes_of_a_linear_network_against_numpy():
    """theta = b + W z, z = K v + c:  of W z d, b d, K v (W d), c W d, v K W d."""
    rng = np.random.default_rng(0)
    K, c, W, b = (rng.normal(size=size) for size in ((2, 4), 4, (4, 3), 3))
    v, d = rng.normal(size=(5, 2)), rng.normal(size=(5, 3))
    net = Hypernetwork((Layer(jnp.asarray(c), jnp.asarray(K)),), jnp.asarray(W), b)
    of_net, of_v = hypernetwork.slopes(net, v, d)
    of_z = d @ W.T
    wanted = [of_z.sum(0), v.T @ of_z, (v @ K + c).T @ d, d.sum(0), of_z @ K.T]
    found = [*of_net.layers[0], of_net.kernel, of_net.bias, of_v]
    for slope, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(slope, right, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_models_begin_near_the_first_one_in_its_scale():
    net = hypernetwork.init(KEY, 13, 100, PARAMS)
    made = jax.vmap(hypernetwork.apply, (None, 0))(
        net, jax.random.normal(KEY, (40, 13))
    )
    for name in ("norm", "kernel"):
        away = tree.parameters(tree.sub(made, PARAMS))[name]
        size = tree.square_norm(tree.parameters(PARAMS)[name])
        share = np.sqrt(tree.square_norm(away) / 40 / size)
        assert 0.1 < share < 1


def test_size_is_that_of_the_authors_network():
    """Of LeNet on CIFAR-10; the embeddings of 50 clients are the rest."""
    first = {"all": jax.ShapeDtypeStruct((121_182,), jnp.float32)}
    net = jax.eval_shape(lambda p: hypernetwork.init(KEY, 13, 100, p), first)
    assert tree.nbytes(net) // 4 + 50 * 13 == 12_271_732
