import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.global_model.scaffold import Server, scaffold
from pfljax.conformance import Case, toy
from pfljax.core.keys import derive
from pfljax.core.minibatches import minibatch
from pfljax.core.types import Local

CONFORMANCE = [
    Case("scaffold", bytes=(2 * toy.WHOLE, 2 * toy.WHOLE)),
    Case(
        "scaffold", {"option": "I", "finetune": 2}, bytes=(2 * toy.WHOLE, 2 * toy.WHOLE)
    ),
]


@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_against_numpy(option):
    states, drawn = toy.run_quadratic(scaffold, option=option, server_lr=0.8)
    x, c, c_k = toy.flat(states[0].server.x), np.zeros(3), np.zeros((4, 3))
    for ids, state in zip(drawn, states[1:], strict=True):
        dy, dc = [], []
        for k in ids:
            correction = c - c_k[k]
            y = toy.descend(x, lambda w, k=k, v=correction: toy.gradient(k, w) + v)
            own = {"I": toy.gradient(k, x), "II": (x - y) / (3 * toy.RATE) - correction}
            dy.append(y - x)
            dc.append(own[option] - c_k[k])
            c_k[k] = own[option]
        x, c = x + 0.8 * np.mean(dy, 0), c + 3 / 4 * np.mean(dc, 0)
        for found, expected in (
            (state.server.x, x), (state.server.c, c), (state.clients, c_k)
        ):  # fmt: skip
            np.testing.assert_allclose(toy.flat(found), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(c, c_k.mean(0), atol=1e-6)


def turn_of(option, steps, batch_size=4):
    """(client state, upload) of client 1, 20 noisy examples, and its start."""
    local = Local(0.1, batch_size)
    method = scaffold(toy.quadratic(), local, option=option)
    server = Server(toy.unflat([1.0, 2, 3]), toy.unflat([0.3, 0, -0.2]))
    c_k = toy.unflat([0.1, -0.4, 0.2])
    turn = toy.turn(jax.random.key(3), 0, steps)
    data = toy.one(toy.noisy_clients(), 1)
    return method.train(turn, server, c_k, data), server, c_k, turn, data


def test_option_two_is_the_mean_minibatch_gradient_along_the_path():
    steps = 7
    (c_new, upload, _), server, c_k, turn, data = turn_of("II", steps)
    y, c, own = (toy.flat(t) for t in (server.x, server.c, c_k))
    slopes = []
    for step in range(steps):
        batch = minibatch(data, jnp.int32(step), derive(turn.key, "minibatches"), 4)
        slopes.append(y - np.average(batch.x[:, 1:], axis=0, weights=batch.mask))
        y = y - 0.1 * (slopes[-1] - own + c)
    np.testing.assert_allclose(toy.flat(c_new), np.mean(slopes, 0), atol=1e-5)
    np.testing.assert_allclose(toy.flat(upload.dc), np.mean(slopes, 0) - own, atol=1e-5)
    np.testing.assert_allclose(toy.flat(upload.dy), y - [1, 2, 3], atol=1e-5)


def test_option_one_is_the_gradient_of_all_examples_at_the_server_model():
    (c_new, *_), server, _, _, data = turn_of("I", steps=2)
    b = np.asarray(data.examples.x[data.offset : data.offset + data.size, 1:])
    expected = toy.flat(server.x) - b.mean(0)
    np.testing.assert_allclose(toy.flat(c_new), expected, atol=1e-5)


@pytest.mark.parametrize("option", ["I", "II"])
def test_a_client_without_steps_keeps_its_variate(option):
    (c_new, upload, _), _, c_k, *_ = turn_of(option, steps=0)
    toy.assert_same(c_new, c_k)
    assert not np.any(toy.flat(upload.dc))
    assert not np.any(toy.flat(upload.dy))
