"""Quantities of clients that a method reports at evaluations, in runs and sweeps."""

import jax.numpy as jnp
import numpy as np
import pytest

import tiny
from pfljax import run
from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import toy
from pfljax.engine import Setting
from pfljax.evaluation.programs import quantities_of_clients
from pfljax.selection import uniform

VEM = tiny.TINY.replace(algorithm="pfedvem")


@pytest.mark.parametrize("width", [None, 2])
def test_each_client_has_its_own_however_many_are_looked_at(width):
    """Of five clients, of which two at once leave one over."""

    def quantities(server, client):
        return {"gap": client["w"].sum() - server}

    local = toy.full_batch()
    method = fedavg(toy.quadratic(), local)._replace(quantities=quantities)
    setting = Setting(method, local, uniform(2, 5), None, None)
    w = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    state = toy.run_rounds(
        fedavg(toy.quadratic(), local), toy.quadratic(), local,
        toy.quadratic_clients(), 0, 2,
    )[0][0]._replace(server=jnp.float32(2))  # fmt: skip
    gaps = quantities_of_clients(setting, width)(state, {"w": w}, np.arange(5))
    np.testing.assert_allclose(gaps["gap"], w.sum(1) - 2, rtol=1e-5)


def test_most_methods_tell_nothing():
    local = toy.full_batch()
    method = fedavg(toy.quadratic(), local)
    setting = Setting(method, local, uniform(2, 5), None, None)
    assert quantities_of_clients(setting) is None


def confidence(q, server):
    """tau of every client in NumPy, f64[C], of the head's posteriors."""
    head = server["head"]
    count = sum(np.size(leaf) for leaf in head.values())
    squares = 0.0
    for name, w in head.items():
        mean = np.asarray(q.mean["head"][name], np.float64)
        sigma = np.log1p(np.exp(np.asarray(q.spread["head"][name], np.float64)))
        by_coordinate = sigma**2 + (mean - np.asarray(w)) ** 2
        squares = squares + by_coordinate.reshape(len(mean), -1).sum(1)
    return count / squares


@pytest.mark.slow
def test_a_run_keeps_tau_of_every_client(tmp_path):
    """Also of those who were never drawn, and of both evaluations."""
    run(VEM.replace(out=str(tmp_path / "run")), quiet=True, report=False)
    with np.load(tmp_path / "run" / "clients.npz") as arrays:
        tau = arrays["client/tau"]
        parts = arrays["client/uncertainty"] + arrays["client/deviation"]
        participations = arrays["participations"]
    assert tau.shape == (2, 6)
    state = tiny.last_state(tmp_path / "run")
    expected = confidence(state.clients, state.server)
    np.testing.assert_allclose(tau[-1], expected, rtol=1e-5)
    np.testing.assert_allclose(tau * parts, 1, rtol=1e-5)
    # The servers' means differ, so that all have moved in between.
    assert np.all(tau[0] != tau[1])
    assert len(set(tau[-1])) == 6 - max(0, np.sum(participations == 0) - 1)


@pytest.mark.slow
def test_states_in_a_store_are_reported_as_well(tmp_path):
    taus = []
    for store in ("device", "disk"):
        out = tmp_path / store
        run(VEM.replace(out=str(out), state_storage=store), quiet=True, report=False)
        with np.load(out / "clients.npz") as arrays:
            taus.append(arrays["client/tau"])
    np.testing.assert_allclose(*taus, rtol=1e-5)
