import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pfljax.conformance import toy
from pfljax.core import keys, losses, minibatches, optimizers, training
from pfljax.core.minibatches import BLOCK, minibatch
from pfljax.core.types import ClientData, Local

RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.05
START = np.float32([1, 2, 3])
TASK = toy.quadratic()


def turn_of(key=0, steps=5, round_=0):
    return toy.turn(jax.random.key(key), round_, steps)


def batches(data, turn, count, batch_size=4):
    """Mean b and the number of examples of the first `count` minibatches."""
    key = keys.derive(turn.key, "minibatches")
    found = [minibatch(data, jnp.int32(s), key, batch_size) for s in range(count)]
    return [np.average(b.x[:, 1:], axis=0, weights=b.mask) for b in found]


def trained(local, turn, data=None):
    data = toy.one(toy.noisy_clients(), 1) if data is None else data
    return training.fit(TASK.loss, toy.unflat(START), data, turn, local)


@pytest.mark.parametrize(
    ("momentum", "decay"), [(None, None), (None, DECAY), (MOMENTUM, DECAY)]
)
def test_sgd_is_torchs(momentum, decay):
    data, turn = toy.one(toy.noisy_clients(), 1), turn_of(steps=7)
    local = Local(RATE, 4, optimizer=optimizers.sgd(momentum, decay))
    w, v = START, 0.0
    for b in batches(data, turn, 7):
        g = (w - b) + (decay or 0) * w
        v = (momentum or 0) * v + g  # the first step is v = g
        w = w - RATE * v
    params, _ = trained(local, turn, data)
    np.testing.assert_allclose(toy.flat(params), w, rtol=1e-5, atol=1e-6)


def test_any_optimizer_of_optax():
    data, turn = toy.one(toy.noisy_clients(), 1), turn_of(steps=4)
    params, _ = trained(Local(RATE, 4, optimizer=optax.adam), turn, data)
    w, m, v = START.astype(float), 0.0, 0.0
    for t, b in enumerate(batches(data, turn, 4), 1):
        m, v = 0.9 * m + 0.1 * (w - b), 0.999 * v + 0.001 * (w - b) ** 2
        w -= RATE * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(toy.flat(params), w, rtol=1e-4, atol=1e-5)


def test_the_metric_is_the_mean_loss_of_the_steps():
    data, turn = toy.one(toy.noisy_clients(), 0), turn_of(steps=6)
    _, metrics = trained(Local(0.0, 4), turn, data)
    b = np.asarray(data.examples.x[:3, 1:])
    loss = ((START - b) ** 2).sum(1).mean() / 2
    assert float(metrics["loss"]) == pytest.approx(loss, rel=1e-5)


def test_ragged_clients_under_vmap_equal_each_alone():
    """The shortest takes 2 steps and waits through 8, momentum and all."""
    train = toy.noisy_clients()
    local = Local(RATE, 4, epochs=2, optimizer=optimizers.sgd(MOMENTUM, DECAY))
    steps = training.budget(local, train.size)
    assert (steps.min(), steps.max()) == (2, 10)

    def run(k, offset, size, steps):
        turn = toy.turn(jax.random.key(k), 0, steps)
        return trained(local, turn, ClientData(train.examples, offset, size))

    ids = jnp.arange(len(train.size))
    alone = jax.jit(run)
    together = jax.jit(jax.vmap(run))(ids, train.offset, train.size, steps)
    for k in (0, 1, 6):
        expected = alone(k, train.offset[k], train.size[k], steps[k])
        found = jax.tree.map(lambda leaf, k=k: leaf[k], together)
        toy.assert_close(found, expected, 1e-6)


@pytest.mark.parametrize("blocks", [False, True], ids=["one by one", "in blocks"])
def test_every_step_has_its_examples_and_its_key(blocks, monkeypatch):
    """Of budgets around a block's length and beyond, in the form of each platform."""
    monkeypatch.setattr(minibatches, "in_blocks", lambda steps: blocks)
    data = toy.one(toy.noisy_clients(), 1)
    local = Local(RATE, 4)
    budgets = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 75]
    most = max(budgets)

    def noting(carry, batch, key):
        step, seen, drawn = carry
        numbers = jnp.where(batch.mask > 0, batch.x[:, 1], jnp.nan)
        seen = seen.at[step].set(numbers)
        drawn = drawn.at[step].set(jax.random.key_data(key))
        return (step + 1, seen, drawn), {"loss": jnp.float32(step)}

    def run(steps):
        start = 0, jnp.zeros((most, 4)), jnp.zeros((most, 2), jnp.uint32)
        return training.over_batches(noting, start, data, turn_of(steps=steps), local)

    (counts, seen, drawn), metrics = jax.jit(jax.vmap(run))(jnp.asarray(budgets))
    assert counts.tolist() == budgets
    order_key = keys.derive(turn_of().key, "minibatches")
    noise_key = keys.derive(turn_of().key, "noise")
    steps = jnp.arange(most)
    found = jax.jit(jax.vmap(lambda step: minibatch(data, step, order_key, 4)))(steps)
    numbers = np.where(found.mask > 0, found.x[..., 1], np.nan)
    noise = jax.vmap(lambda step: jax.random.fold_in(noise_key, step))(steps)
    for place, budget in enumerate(budgets):
        np.testing.assert_array_equal(seen[place, :budget], numbers[:budget])
        words = jax.random.key_data(noise[:budget])
        np.testing.assert_array_equal(drawn[place, :budget], words)
        assert not np.any(seen[place, budget:])
        mean = np.mean(np.arange(budget)) if budget else 0
        assert float(metrics["loss"][place]) == pytest.approx(mean)


def test_a_known_number_of_steps_has_a_gradient_backwards():
    """Of a quadratic it is that of (1 - rate)^steps times each number."""
    data = toy.one(toy.noisy_clients(), 1)

    def last(start, steps):
        turn = turn_of(steps=steps)
        params, _ = training.fit(
            TASK.loss, toy.unflat(start), data, turn, Local(RATE, 4)
        )
        return sum(leaf.sum() for leaf in jax.tree.leaves(params))

    slope = jax.grad(last)(START, BLOCK + 3)
    np.testing.assert_allclose(slope, (1 - RATE) ** (BLOCK + 3), rtol=1e-4)
    known = last(START, BLOCK + 3)
    assert float(jax.jit(last)(START, BLOCK + 3)) == pytest.approx(float(known))


def test_steps_in_place_of_epochs():
    sizes = jnp.asarray([1, 4, 5, 100])
    assert training.budget(Local(RATE, 4, epochs=3), sizes).tolist() == [3, 3, 6, 75]
    assert (
        training.budget(Local(RATE, 4, epochs=None, steps=7), sizes).tolist() == [7] * 4
    )


def test_the_learning_rate_follows_the_round_without_a_new_program():
    local = Local(lambda r: 0.1 * 0.5**r, batch_size=20)
    run = jax.jit(lambda turn: trained(local, turn)[0])
    data = toy.one(toy.noisy_clients(), 1)
    b = np.asarray(data.examples.x[data.offset : data.offset + 20, 1:]).mean(0)
    for round_ in (0, 3):
        w = START - 0.1 * 0.5**round_ * (START - b)
        found = run(turn_of(steps=1, round_=round_))
        np.testing.assert_allclose(toy.flat(found), w, rtol=1e-5)
    assert run._cache_size() == 1


@pytest.mark.parametrize("k", [0, 1, 2])
def test_mean_over_examples(k):
    data = toy.one(toy.noisy_clients(), k)
    found = training.mean_over_examples(
        lambda batch: {
            "mean": jnp.average(batch.x, axis=0, weights=batch.mask),
            "loss": TASK.loss(toy.unflat(START), batch, None),
        },
        data,
        batch_size=4,
    )
    x = np.asarray(data.examples.x[data.offset : data.offset + data.size])
    np.testing.assert_allclose(found["mean"], x.mean(0), rtol=1e-5, atol=1e-6)
    loss = ((START - x[:, 1:]) ** 2).sum(1).mean() / 2
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-5)


def test_a_client_without_examples_takes_no_part():
    data, _ = toy.deal(np.ones((4, 4)), np.zeros(4), [4, 0])
    params, metrics = trained(Local(RATE, 4), turn_of(steps=0), toy.one(data, 1))
    np.testing.assert_array_equal(toy.flat(params), START)
    assert metrics["loss"] == 0


def test_purposes_have_their_own_keys():
    turn = turn_of(key=3)
    three = [turn.key, *(keys.fold(turn, name).key for name in ("a", "b"))]
    assert len({tuple(toy.arrays(key)[0].tolist()) for key in three}) == 3
    toy.assert_same(keys.derive(turn.key, "a"), three[1])


def test_a_second_training_takes_its_own_epochs():
    local, turn = Local(RATE, 4, epochs=2), turn_of(steps=10)
    assert training.with_epochs(turn, local, None).steps is turn.steps
    assert int(training.with_epochs(turn, local, 5).steps) == 25
    with pytest.raises(ValueError, match="give epochs instead of steps"):
        training.with_epochs(turn, Local(RATE, 4, epochs=None, steps=3), 5)


def test_a_part_of_an_epoch_is_a_part_of_its_steps():
    """5 examples in batches of 2 are 3 steps; halves round up to at least one."""
    size = jnp.asarray([5, 10, 0])
    for epochs, expected in (
        (1, [3, 5, 0]), (0.5, [2, 3, 0]), (0.1, [1, 1, 0]), (1.5, [5, 8, 0]),
        (2.0, [6, 10, 0]), (0, [0, 0, 0]),
    ):  # fmt: skip
        steps = training.budget(Local(RATE, 2, epochs=epochs), size)
        np.testing.assert_array_equal(steps, expected)
        assert steps.dtype == jnp.int32


def test_a_second_training_takes_a_part_of_an_epoch():
    half, turn = Local(RATE, 4, epochs=0.5), turn_of(steps=5)
    assert int(training.with_epochs(turn, half, 2).steps) == 20
    whole = Local(RATE, 4, epochs=2)
    assert int(training.with_epochs(turn, whole, 0.5).steps) == 1
    assert int(training.with_epochs(turn, whole, 0.1).steps) == 1
    assert int(training.with_epochs(turn, half, 0).steps) == 0


def test_the_proximal_term_is_half_the_squared_distance():
    a, b = toy.unflat([4.0, 5, 1]), toy.unflat([1.0, 1, 3])
    assert float(losses.proximal(b, 0.5)(a)) == pytest.approx(0.5 * (12.5 + 2))
    slope = jax.grad(losses.proximal(a, 0.5))(a)
    np.testing.assert_array_equal(toy.flat(slope), 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": -1.0}, "Local: learning_rate is -1.0; expected a finite"),
        ({"learning_rate": "x"}, "is 'x'; expected a number or a function"),
        ({"batch_size": 0}, "Local: batch_size is 0; expected at least 1"),
        ({"batch_size": 1.5}, "Local: batch_size is 1.5; expected a whole number"),
        ({"epochs": -1}, "Local: epochs is -1; expected at least 0, or None"),
        ({"steps": 3}, "Local: epochs is 1 and steps is 3; give one of them"),
    ],
)
def test_local_training_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Local(**{"learning_rate": RATE, "batch_size": 4, **values})


def test_the_numbers_of_local_training_may_be_traced():
    rates = jax.vmap(lambda rate: Local(rate, 4).learning_rate)(jnp.array([-1.0, 1.0]))
    assert rates.tolist() == [-1, 1]


def test_a_part_is_trained_as_if_the_rest_were_constant():
    """By an optimizer that would shrink the rest."""
    data, turn = toy.one(toy.noisy_clients(), 1), turn_of(steps=3)
    local = Local(RATE, 4, optimizer=optimizers.sgd(MOMENTUM, DECAY))
    chosen = {"body": True, "head": False}
    params = toy.unflat(START)
    found, _ = training.fit_part(TASK.loss, params, chosen, data, turn, local)
    # Of a quadratic each coordinate is trained by itself.
    whole, _ = trained(local, turn, data)
    np.testing.assert_allclose(found["body"], whole["body"], rtol=1e-6)
    np.testing.assert_array_equal(found["head"], START[2:])
