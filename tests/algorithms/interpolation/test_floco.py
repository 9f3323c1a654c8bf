from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import engine, selection
from pfljax.algorithms.interpolation.floco import Client, Server, floco
from pfljax.conformance import Case, toy
from pfljax.core import affinity, simplex, tree
from pfljax.core.keys import derive

M = 3
SENT = toy.BODY + 4 * (M * 12 + 3)  # the head has 12 weights and 3 biases
CONFORMANCE = [
    Case("floco", {"vertices": M, "tau": 2}, bytes=(SENT + 4 * M, SENT)),
    Case(
        "floco",
        {"vertices": M, "tau": 1, "lam": 0.5, "radius": 0.4},
        bytes=(SENT + 4 * M, SENT),
    ),
]

KEY = jax.random.key(0)
TASK = toy.quadratic()
LAM = 0.6


def at(w, alpha):
    """The model f[3] at alpha: two coordinates of the body, and one of the head."""
    body, head = w
    return np.r_[body, alpha @ head]


def slope(k, w, alpha):
    """Of quadratic client k: of the body, and of each vertex alpha_m times the head's."""
    by_model = toy.gradient(k, at(w, alpha))
    return by_model[:2], alpha * by_model[2]


def drawn(state, k, purpose, tau, radius, steps=3):
    """alpha of every step, f[M]."""
    noise = derive(toy.turn_key(state, k), purpose)
    points = []
    for step in range(steps):
        key = derive(jax.random.fold_in(noise, step), "alpha")
        exponential = np.asarray(jax.random.exponential(key, (M,)))
        delta = exponential / exponential.sum()
        if state.round < tau:
            points.append(delta)
            continue
        beta = np.asarray(state.server.beta[k])
        distance = radius * float(jax.random.uniform(jax.random.fold_in(key, 1)))
        share = min(1, distance / np.abs(delta - beta).sum())
        points.append(beta + share * (delta - beta))
    return points


def trained(k, w, alphas, pull=0.0, towards=None):
    body, head = w
    for alpha in alphas:
        by_body, by_head = slope(k, (body, head), alpha)
        if towards is not None:
            by_body = by_body + pull * (body - towards[0])
            by_head = by_head + pull * (head - towards[1])
        body, head = body - toy.RATE * by_body, head - toy.RATE * by_head
    return body, head


def parts(w):
    return np.asarray(w["body"], float), np.asarray(w["head"], float)[..., 0]


@pytest.mark.parametrize("lam", [None, LAM])
def test_floco_against_numpy(lam):
    """Rounds 0 and 1 anywhere on the simplex, 2 and 3 near the points of the clients."""
    states, ids_of = toy.quadratic_game(
        floco, 4, vertices=M, tau=2, radius=0.5, lam=lam
    )
    w = parts(states[0].server.w)
    own = {}
    changes = np.zeros((4, M))
    for ids, before, after in zip(ids_of, states, states[1:], strict=False):
        uploads = []
        for k in ids:
            alphas = drawn(before, k, "noise", 2, 0.5)
            uploads.append(trained(k, w, alphas))
            own[k] = trained(k, own.get(k, w), alphas, LAM, w)
            changes[k] = uploads[-1][1] - w[1]
        rows = toy.COUNTS[ids]
        w = tuple(np.average(leaf, 0, rows) for leaf in zip(*uploads, strict=True))
        for found, wanted in zip(parts(after.server.w), w, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)
        if lam is not None:
            v = parts(after.clients.v)
            for k in own:
                np.testing.assert_allclose(v[0][k], own[k][0], rtol=1e-4, atol=2e-5)
                np.testing.assert_allclose(v[1][k], own[k][1], rtol=1e-4, atol=2e-5)
        if after.round < 2:
            np.testing.assert_allclose(after.server.beta, np.full((4, M), 1 / M))
        if after.round == 2:
            heard = after.server.changes.heard
            np.testing.assert_allclose(
                after.server.changes.params["head"][..., 0],
                changes,
                rtol=1e-4,
                atol=2e-5,
            )
            beta = simplex.places(after.server.changes, M)
            assert float(np.abs(beta - 1 / M).max()) > 0.1
            assert heard.sum() >= 3
        if after.round >= 2:
            np.testing.assert_allclose(after.server.beta, beta, atol=1e-6)
