import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.algorithms.global_model.fedprox_adaptive import (
    Server,
    Upload,
    aggregate,
    fedprox_adaptive,
)
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedprox_adaptive", bytes=(toy.WHOLE + 4, toy.WHOLE + 4)),
    Case(
        "fedprox_adaptive",
        {"mu": 1.0, "inexactness": True, "finetune": 2},
        bytes=(toy.WHOLE + 4, toy.WHOLE + 4),
    ),
]

ROUNDS, STEP, STREAK = 14, 0.1, 2


def loss(k, w):
    """F_k."""
    return toy.A[k] / 2 * ((w - toy.B[k]) ** 2).sum()


def replay(w, mu, drawn):
    """(w, mu) after each round: the rule of the paper, on clients' last losses."""
    last, falls, states = {}, 0, []
    for ids in drawn:
        change, compared = 0.0, False
        for k in ids:
            if k in last:
                change += toy.COUNTS[k] * (loss(k, w) - last[k])
                compared = True
        for k in ids:
            last[k] = loss(k, w)
        slope = lambda x, k, w=w, mu=mu: toy.gradient(k, x) + mu * (x - w)  # noqa: E731
        uploads = [toy.descend(w, lambda x, k=k, f=slope: f(x, k)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        if compared:
            falls = falls + 1 if change < 0 else 0
        if change > 0:
            mu += STEP
        elif falls == STREAK:
            mu, falls = max(mu - STEP, 0), 0
        states.append((w, mu))
    return states


def test_adaptive_fedprox_against_numpy():
    cohort = 2
    states, drawn = toy.run_quadratic(
        fedprox_adaptive, ROUNDS, cohort, mu=0.1, step=STEP, streak=STREAK
    )
    expected = replay(toy.flat(states[0].server.w), 0.1, drawn)
    for state, (w, mu) in zip(states[1:], expected, strict=True):
        np.testing.assert_allclose(toy.flat(state.server.w), w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.server.mu, mu, atol=1e-6)
    changes = np.diff([0.1, *(mu for _, mu in expected)])
    # Of all four, the loss falls; of two, it rises as well.
    assert (changes < 0).any()
    assert (changes > 0).any() == (cohort == 2)


def after_losses(losses, server, mask=(1, 1)):
    """The server after these losses of the first two clients, with 1 example each."""
    w = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), server.w)
    uploads = Upload(w=w, loss=jnp.asarray(losses))
    return aggregate(STEP, STREAK, server, uploads, toy.cohort(mask))


def start(mu):
    method = fedprox_adaptive(toy.quadratic(), toy.full_batch(), mu=mu)
    return method.init(toy.unflat([1.0, 2, 3]), 4, jax.random.key(0))


def test_falls_count_in_a_row_and_anew_after_a_change():
    server, found = start(0.5), []
    for loss_ in (5.0, 4, 3, 2, 2.5, 2, 2, 1, 0.5):
        server = after_losses([loss_, 1.0], server)
        found.append(float(server.mu))
    # First nobody is known; 4 and 3 fall; 2.5 rises; 2 falls, but the next is equal.
    expected = [0.5, 0.5, 0.4, 0.4, 0.5, 0.5, 0.5, 0.5, 0.4]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_mu_ends_at_zero():
    server = start(0.05)
    for loss_ in (3.0, 2, 1):
        server = after_losses([loss_, 1.0], server)
    assert server.mu == 0


def test_who_did_not_report_has_no_say():
    server = after_losses([1.0, 1], start(0.5))
    server = after_losses([1.0, 9], server, mask=(1, 0))
    assert server.mu == 0.5
    assert server.losses[1] == 1
    server = after_losses([1.0, 2], server)
    assert server.mu == pytest.approx(0.6)


def test_others_losses_are_not_compared():
    """Client 1 has never reported: its great loss is no rise."""
    server = after_losses([1.0, 9], start(0.5), mask=(1, 0))
    assert after_losses([0.9, 9], server).falls == 1
    server = after_losses([0.9, 9], server, mask=(1, 0))
    assert server.falls == 1
    # A round of new clients alone neither rises nor ends the falls.
    server = after_losses([9.0, 9], server, mask=(0, 1))
    assert server.mu == 0.5
    assert server.falls == 1
    assert after_losses([0.8, 9], server, mask=(1, 0)).mu == pytest.approx(0.4)


def test_the_metric_is_the_mu_that_clients_receive():
    method = fedprox_adaptive(toy.quadratic(), toy.full_batch(), mu=0.7)
    server = start(0.7)
    assert isinstance(server, Server)
    data, turn = toy.one(toy.quadratic_clients(), 1), toy.turn(steps=3)
    message = method.message(turn, server, ())
    _, upload, metrics = method.train(turn, message, (), data)
    assert float(metrics["mu"]) == pytest.approx(0.7)
    w = toy.flat(server.w)
    assert float(upload.loss) == pytest.approx(loss(1, w), rel=1e-5)
    fixed = fedprox(toy.quadratic(), toy.full_batch(), mu=0.7)
    _, expected, _ = fixed.train(turn, server.w, (), data)
    toy.assert_close(upload.w, expected, 1e-6)
