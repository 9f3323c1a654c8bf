"""Running statistics among other leaves, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pfljax.conformance import toy
from pfljax.core import statistics, tree
from pfljax.core.local_statistics import by_name, fill, unsent


def model(scale, mean):
    """A layer's parameter and its statistic."""
    leaf = {"scale": jnp.float32(scale), "batch_stats": {"mean": jnp.float32(mean)}}
    return {"body": {"norm": leaf}}


def test_lengths_and_products_leave_statistics_out():
    a, b = model([3.0, 4], [100.0, 1]), model([2.0, 1], [7.0, 7])
    assert float(tree.dot(a, b)) == 10
    assert float(tree.square_norm(a)) == 25
    np.testing.assert_allclose(tree.square_cosine(a, b), 100 / (25 * 5), rtol=1e-6)
    slope = jax.grad(lambda a: tree.square_norm(tree.sub(a, b)))(a)
    toy.assert_same(slope, model([2.0, 6], [0.0, 0]))


def test_rates_and_zeros_tell_statistics_from_parameters():
    a = model([3.0, 4], [100.0, 1])
    toy.assert_same(statistics.scale(a, 2), model([6.0, 8], [100.0, 1]))
    toy.assert_same(statistics.without(a), model([3.0, 4], [0.0, 0]))
    assert jax.tree.leaves(statistics.mask(a)) == [True, False]


def test_statistics_step_outside_of_the_optimizer_in_tuples_too():
    pair = (model([3.0, 4], [100.0, 1]), model([2.0, 1], [7.0, 7]))
    slope = (model([1.0, 1], [10.0, 2]), model([1.0, 0], [3.0, -3]))
    optimizer = statistics.beside(
        optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.1, momentum=0.9))
    )
    moments = optimizer.init(pair)
    for _ in range(2):
        updates, moments = optimizer.update(slope, moments, pair)
        pair = optax.apply_updates(pair, updates)
    w, trace = np.array([3.0, 4]), 0.0
    for _ in range(2):
        trace = 0.9 * trace + 1 + 0.5 * w
        w = w - 0.1 * trace
    toy.assert_close(pair[0], model(w, [80.0, -3]))
    np.testing.assert_allclose(pair[1]["body"]["norm"]["batch_stats"]["mean"], [1, 13])


def test_following_gives_old_minus_new_at_any_scale_and_a_constant_beyond():
    def loss(w, old):
        return 5 * statistics.following(w**2, old, jnp.sin(w) + old / 2)

    slope = jax.grad(loss, (0, 1))
    dw, change = slope(2.0, 3.0)
    np.testing.assert_allclose(dw, 20.0)
    np.testing.assert_allclose(change, 3 - np.sin(2.0) - 1.5, rtol=1e-6)
    assert loss(2.0, 3.0) == 20
    _, (bend, constant) = jax.jvp(slope, (2.0, 3.0), (1.0, 1.0))
    assert float(bend) == 10
    assert float(constant) == 0


def test_what_is_not_sent_is_filled_in_by_name():
    a = model([3.0, 4], [100.0, 1])
    assert list(by_name(a)) == ["body/norm/batch_stats/mean"]
    assert len(jax.tree.leaves(unsent(a))) == 1
    toy.assert_same(fill(unsent(a), by_name(a)), a)
