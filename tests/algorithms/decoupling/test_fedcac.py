import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax.algorithms.decoupling.fedcac import collaborators, fedcac
from pfljax.conformance import Case, toy

SENT = toy.WHOLE, toy.WHOLE + toy.WHOLE // 4  # a byte says that a number is critical
CONFORMANCE = [
    # What is critical depends on the steps: `origin` cannot know it.
    Case("fedcac", bytes=SENT, sends_statistics=True),
    Case("fedcac", {"tau": 0.3, "beta": 2}, bytes=SENT, sends_statistics=True),
]

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, _ = toy.ragged()
TAU, BETA = 0.4, 4
JOIN = jax.jit(collaborators)


def trained(w, x, y):
    """([b, W, c, V] after two steps, what of them is critical)."""
    first = w
    for _ in range(2):
        logits = perceptron.logits(w, perceptron.features(w, x))
        w = perceptron.stepped(w, x, perceptron.cross_entropy_slope(logits, y))
    critical = []
    for new, old in zip(w, first, strict=True):
        moved, count = np.abs((new - old) * new), int(TAU * new.size)
        least = np.sort(moved, axis=None)[::-1][count - 1] if count else np.inf
        critical.append((moved >= least) & (moved > 0))
    return w, critical


def helpers(critical, number):
    """Who helps whom in the round of this number, from 1."""
    rows = np.array([np.concatenate([leaf.ravel() for leaf in c]) for c in critical])
    count = rows.sum(1)
    apart = (rows[:, None] != rows).sum(-1)
    overlap = 1 - apart / (2 * count[:, None])
    others = overlap[~np.eye(len(rows), dtype=bool)]
    least = others.mean() + number / BETA * (others.max() - others.mean())
    return (overlap >= least) | np.eye(len(rows), dtype=bool)


def test_fedcac_against_numpy():
    method = fedcac(TASK, LOCAL, tau=TAU, beta=BETA)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 3, cohort=5)
    w, helped = perceptron.weights(states[0].server.w), 0
    message = dict.fromkeys(range(8), w)
    critical = [[np.zeros(leaf.shape, bool) for leaf in w]] * 8
    custom = [w] * 8
    for number, state in enumerate(states[1:], 1):
        cohort = np.asarray(state.cohort)
        new = {k: trained(message[k], *perceptron.examples(k)) for k in cohort}
        joins = helpers([new[k][1] for k in cohort], number)
        helped += joins.sum() - len(cohort)
        for k, row in zip(cohort, joins, strict=True):
            critical[k] = new[k][1]
            helping = [new[j][0] for j in cohort[row]]
            custom[k] = [np.mean(leaf, 0) for leaf in zip(*helping, strict=True)]
        uploads = [new[k][0] for k in cohort]
        w = [np.mean(leaf, 0) for leaf in zip(*uploads, strict=True)]
        message = {
            k: [np.where(*leaf) for leaf in zip(critical[k], custom[k], w, strict=True)]
            for k in range(8)
        }
        perceptron.assert_weights(state.server.w, w)
        perceptron.assert_clients(state.server.custom, custom)
        for k in range(8):
            turn = toy.turn()._replace(id=jnp.int32(k))
            evaluated = method.personal(turn, state.server, (), None)
            perceptron.assert_weights(evaluated, message[k])
    assert helped > 3


@pytest.mark.parametrize(
    ("progress", "alike", "helps"),
    [(0.5, False, 2), (1.2, False, 0), (1.2, True, 6), (0.1, True, 6)],
)
def test_collaborators(progress, alike, helps):
    """Of overlaps 1/2, 0 and 0; equal ones help each other for ever."""
    masks = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    if alike:
        masks = [masks[0]] * 3
    critical = {"w": jnp.array(masks, bool)}
    found = JOIN(critical, jnp.array([True] * 3), progress)
    assert np.asarray(found).sum() == 3 + helps
    assert np.asarray(found).diagonal().all()


def test_who_did_not_report_helps_nobody():
    critical = {"w": jnp.ones((3, 2), bool)}
    found = JOIN(critical, jnp.array([True, False, True]), 0.5)
    wanted = [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    np.testing.assert_array_equal(jax.device_get(found), wanted)
