import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.distillation import _generator as generator
from pfljax.algorithms.distillation._generator import Drawn

KEY = jax.random.key(4)
CLASSES, HIDDEN, WIDTH = 3, 5, 2
FIRST = generator.init(KEY, CLASSES, HIDDEN, WIDTH)
HEADS = jnp.asarray(np.random.default_rng(0).normal(size=(2, WIDTH, CLASSES)))
# Only label 0 has two examples somewhere.
COUNTS = jnp.asarray([[4.0, 1, 0], [12, 1, 1]])


def heads(z):
    """Logits [M, B, K] of two linear heads."""
    return jnp.einsum("be,mek->mbk", z, HEADS)


def forward(g, noise, labels):
    """A generator's features, in NumPy."""
    one_hot = np.eye(CLASSES)[labels]
    inputs = np.concatenate([noise, one_hot], 1) @ np.asarray(g.first)
    spread = np.sqrt(inputs.var(0) + 1e-5)
    hidden = np.maximum(g.scale * (inputs - inputs.mean(0)) / spread + g.shift, 0)
    return hidden @ np.asarray(g.kernel) + np.asarray(g.bias)


def test_features_are_those_of_a_perceptron_normalised_by_the_batch():
    g = FIRST.g._replace(shift=jnp.arange(5.0), scale=jnp.arange(5.0) + 0.5)
    labels = jnp.asarray([0, 2, 2, 1])
    drawn = generator.draw(g, labels, KEY)
    assert drawn.noise.shape == (4, generator.NOISE)
    wanted = forward(g, np.asarray(drawn.noise), np.asarray(labels))
    np.testing.assert_allclose(drawn.z, wanted, rtol=1e-4, atol=1e-5)


def test_labels_are_drawn_of_the_known_ones_alike():
    known = jnp.asarray([1.0, 0, 1])
    counts = np.bincount(generator.draw_labels(known, KEY, 4000), minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - 2000) < 200
    assert not generator.draw_labels(jnp.zeros(3), KEY, 10).any()


def test_likeness_against_numpy():
    rng = np.random.default_rng(1)
    noise, z = rng.normal(size=(4, 6)), rng.normal(size=(4, 2))
    products = [
        ((noise[a] - noise[b]) ** 2).mean() * np.abs(z[a] - z[b]).mean()
        for a in range(4)
        for b in range(4)
    ]
    found = generator.likeness(Drawn(z=jnp.asarray(z), noise=jnp.asarray(noise)))
    assert float(found) == pytest.approx(np.exp(-np.mean(products)), rel=1e-5)
    same = Drawn(z=jnp.ones((4, 2)), noise=jnp.asarray(noise))
    assert float(generator.likeness(same)) == 1


def objective(g, key):
    """The loss of a step, which draws label 0 from COUNTS: it has 4 and 12 examples."""
    _, noise_key = jax.random.split(key)
    drawn = generator.draw(g, jnp.zeros(generator.ROWS, jnp.int32), noise_key)
    log = jax.nn.log_softmax(heads(drawn.z))
    return -(log[0, :, 0] / 4 + log[1, :, 0] * 3 / 4).mean() + generator.likeness(drawn)


@jax.jit
def trained(start, counts, steps):
    return generator.train(start, heads, counts, KEY, 0.01, steps)


def test_a_step_is_torchs_adam_with_a_decay_of_the_weights():
    """The first step of Adam goes by the sign of the slope, decay and all."""
    start = FIRST._replace(g=FIRST.g._replace(shift=jnp.full(HIDDEN, 0.3)))
    after = trained(start, COUNTS, jnp.int32(1))
    slopes = jax.jit(jax.grad(objective))(start.g, jax.random.fold_in(KEY, 0))
    for new, old, slope in zip(after.g, start.g, slopes, strict=True):
        slope = slope + 0.01 * old
        sure = np.abs(slope) > 1e-5
        assert sure.any()
        wanted = old - 0.01 * np.sign(slope)
        np.testing.assert_allclose(new[sure], wanted[sure], atol=2e-5)
    np.testing.assert_array_equal(after.labels, [1, 0, 0])


@pytest.mark.slow
def test_training_makes_features_that_the_heads_know():
    before = objective(FIRST.g, KEY)
    after = trained(FIRST, COUNTS, jnp.int32(200))
    assert float(objective(after.g, KEY)) < 0.5 * float(before)


def test_no_step_changes_nothing_but_what_is_known():
    after = trained(FIRST, COUNTS, 0)
    np.testing.assert_array_equal(after.g.kernel, FIRST.g.kernel)
    np.testing.assert_array_equal(after.labels, [1, 0, 0])
    # What was known once stays so.
    later = trained(after, jnp.asarray([[0.0, 0, 2], [0, 0, 0]]), 0)
    np.testing.assert_array_equal(later.labels, [1, 0, 1])


def test_the_absent_teach_nothing():
    """Counts of 0 are a weight of 0, also where nobody is left."""
    absent = COUNTS.at[1].set(0)

    def with_another_head(z):
        return heads(z).at[1].multiply(7)

    one = trained(FIRST, absent, 3)
    other = jax.jit(generator.train, static_argnums=1)(
        FIRST, with_another_head, absent, KEY, 0.01, 3
    )
    np.testing.assert_allclose(one.g.kernel, other.g.kernel, atol=1e-6)
    nobody = trained(FIRST, jnp.zeros((2, 3)), 3)
    assert all(np.isfinite(leaf).all() for leaf in nobody.g)
    assert not nobody.labels.any()
