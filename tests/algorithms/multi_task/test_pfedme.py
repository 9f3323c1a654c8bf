import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.multi_task.pfedme import pfedme
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import sgd

CONFORMANCE = [
    Case("pfedme", bytes=(toy.WHOLE, toy.WHOLE)),
    Case(
        "pfedme", {"as_in": "superfed-code", "lam": 0.5}, bytes=(toy.WHOLE, toy.WHOLE)
    ),
    Case("pfedme", {"newcomer_steps": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

LAM, RATE, DECAY, BETA = 2.0, 0.05, 0.1, 0.7
MOMENTUM = 0.6


def pfedme_with_momentum(task, local, **options):
    return pfedme(task, local._replace(optimizer=sgd(MOMENTUM)), **options)


@pytest.mark.parametrize("warm", [True, False])
def test_pfedme_against_numpy(warm):
    options = {"lam": LAM, "inner_lr": RATE, "inner_steps": 4, "beta": BETA}
    states, drawn = toy.quadratic_game(pfedme, **options, inner_decay=DECAY, warm=warm)
    w, theta = toy.flat(states[0].server), toy.flat(states[0].clients)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            own, near = w, w
            for _ in range(3):
                pulled = lambda x, k=k, own=own: (  # noqa: E731
                    toy.gradient(k, x) + LAM * (x - own) + DECAY * x
                )
                near = toy.descend(near if warm else own, pulled, 4, RATE)
                own = own - toy.RATE * LAM * (own - near)
            theta[k] = near
            uploads.append(own)
        w = (1 - BETA) * w + BETA * np.mean(uploads, axis=0)
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        found = toy.flat(state.clients)
        np.testing.assert_allclose(found, theta, rtol=1e-5, atol=1e-5)


def unit(change):
    """Each tensor (the first two coordinates, the third) over its norm; 0 at 0."""
    return np.concatenate(
        [part / max(np.linalg.norm(part), 1e-30) for part in (change[:2], change[2:])]
    )


def test_superfeds_form_against_numpy():
    """theta trains an epoch, w_k steps, and so on: 3 epochs in batches of 2 rows.

    The momentum of theta goes on from epoch to epoch, and starts anew every round.
    """
    options = {"lam": LAM, "beta": BETA, "as_in": "superfed-code", "batch_size": 2}
    options |= {"weighting": "rows"}
    states, drawn = toy.quadratic_game(pfedme_with_momentum, **options)
    w, kept = toy.flat(states[0].server), toy.flat(states[0].clients)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            own, theta, speed = w, w, 0
            for _ in range(3):
                for _ in range(-(-toy.COUNTS[k] // 2)):
                    pull = toy.gradient(k, theta) + LAM * unit(theta - own)
                    speed = MOMENTUM * speed + pull
                    theta = theta - toy.RATE * speed
                own = own - toy.RATE * LAM * (own - theta)
            kept[k] = theta
            uploads.append(own)
        mean = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        w = (1 - BETA) * w + BETA * mean
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-4, atol=1e-4)
        found = toy.flat(state.clients)
        np.testing.assert_allclose(found, kept, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steps", [0, 1, 5, 8])
def test_superfeds_form_of_less_work(steps):
    """Epochs of two batches of three rows, the last cut short: w_k steps after each."""
    task, local = toy.quadratic(), toy.full_batch(10)._replace(batch_size=2)
    method = pfedme_with_momentum(task, local, lam=LAM, as_in="superfed-code")
    w = own = theta = np.array([1.0, -2, 3])
    speed = np.zeros(3)
    for left in range(steps, 0, -2):
        for _ in range(min(left, 2)):
            pull = toy.gradient(2, theta) + LAM * unit(theta - own)
            speed = MOMENTUM * speed + pull
            theta = theta - toy.RATE * speed
        own = own - toy.RATE * LAM * (own - theta)
    data, key = toy.one(toy.quadratic_clients(), 2), jax.random.key(0)
    turn, start = toy.turn(key, 0, steps), toy.unflat(w)
    client = method.init_client(start, jnp.int32(2), key)
    client, upload, metrics = method.train(turn, start, client, data)
    np.testing.assert_allclose(toy.flat(upload), own, rtol=1e-5)
    np.testing.assert_allclose(toy.flat(client), theta, rtol=1e-5)
    assert (metrics["loss"] > 0) == (steps > 0)


def test_an_unseen_client_fits_theta_near_w():
    options = {"lam": LAM, "inner_lr": RATE, "inner_steps": 4}
    method = pfedme(toy.quadratic(), toy.full_batch(), newcomer_steps=3, **options)
    w, data = np.array([1.0, -2, 3]), toy.one(toy.quadratic_clients(), 2)
    turn = toy.turn(jax.random.key(0), 0, 0)
    client = method.init_client(toy.unflat(np.zeros(3)), jnp.int32(2), turn.key)
    judged = method.newcomer(turn, toy.unflat(w), data)
    pulled = lambda x: toy.gradient(2, x) + LAM * (x - w)  # noqa: E731
    wanted = toy.descend(w, pulled, 3 * 4, RATE)
    np.testing.assert_allclose(toy.flat(judged), wanted, rtol=1e-5)
    own = method.personal(turn, toy.unflat(w), client, data)
    np.testing.assert_array_equal(toy.flat(own), np.zeros(3))


def test_an_unknown_form_names_the_known():
    with pytest.raises(ValueError, match="known: paper, superfed-code"):
        pfedme(toy.quadratic(), toy.full_batch(), as_in="code")
    with pytest.raises(ValueError, match="of as_in='paper' alone"):
        pfedme(
            toy.quadratic(), toy.full_batch(), as_in="superfed-code", newcomer_steps=1
        )
