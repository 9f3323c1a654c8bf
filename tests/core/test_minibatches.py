import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.conformance import toy
from pfljax.core.minibatches import BLOCK, blocks, divide, minibatch, sample


@pytest.mark.parametrize(("size", "batch_size"), [(10, 4), (8, 4), (3, 4), (1, 1)])
def test_every_epoch_visits_every_row_once(size, batch_size):
    data, _ = toy.deal(np.arange(30)[:, None], np.arange(30), [7, size, 23 - size])
    data, key = toy.one(data, 1), jax.random.key(5)
    per_epoch, orders = -(-size // batch_size), []
    step = jax.jit(lambda s: minibatch(data, s, key, batch_size))
    for epoch in range(4):
        found = [step(epoch * per_epoch + s) for s in range(per_epoch)]
        mask = np.concatenate([b.mask for b in found])
        labels = np.concatenate([b.y for b in found])
        assert [int(b.mask.sum()) for b in found[:-1]] == [batch_size] * (per_epoch - 1)
        assert sorted(labels[mask == 1]) == list(range(7, 7 + size))
        assert set(labels) <= set(range(7, 7 + size))  # padding holds own examples too
        orders.append(tuple(labels[mask == 1]))
    assert size < 4 or len(set(orders)) > 1


def test_all_lanes_have_as_many_blocks_as_the_longest():
    """At every level of vmap; alone each has its own."""
    steps = jnp.asarray([[0, 1, BLOCK], [BLOCK + 1, 5, 2 * BLOCK + 1]])
    assert jax.vmap(jax.vmap(blocks))(steps).tolist() == [[3] * 3] * 2
    alone = [int(blocks(count)) for count in steps.ravel()]
    assert alone == [0, 1, 1, 2, 1, 3]


def test_sample_draws_own_examples_with_replacement():
    data, _ = toy.deal(np.arange(30)[:, None], np.arange(30), [7, 5, 18])
    batch = sample(toy.one(data, 1), jax.random.key(0), 400)
    counts = np.bincount(batch.y, minlength=30)
    assert counts[7:12].min() > 50
    assert counts.sum() == counts[7:12].sum() == 400
    assert (batch.mask == 1).all()


def test_a_client_without_examples_has_no_row_that_counts():
    data, _ = toy.deal(np.ones((4, 4)), np.zeros(4), [4, 0])
    data, key = toy.one(data, 1), jax.random.key(0)
    assert not minibatch(data, jnp.int32(0), key, 3).mask.any()
    assert not sample(data, key, 3).mask.any()


@pytest.mark.parametrize(
    ("size", "first", "rest"),
    [
        (0, [], []),
        (1, [0], [0]),
        (2, [0], [1]),
        (3, [0, 1], [2]),
        (10, range(9), [9]),
    ],
)
def test_both_parts_of_divided_examples_have_one(size, first, rest):
    """0.9 of the examples; the first of the client is example 3 of the pool."""
    data = toy.one(toy.noisy_clients(), 1)._replace(size=jnp.int32(size))
    for part, labels in zip(divide(data, 0.9), (first, rest), strict=True):
        start = int(part.offset) - 3
        assert list(range(start, start + int(part.size))) == list(labels)
