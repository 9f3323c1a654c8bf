from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from pfljax import models
from pfljax.algorithms._affinity import Models
from pfljax.algorithms._example_outputs import number_examples
from pfljax.algorithms.multi_task.mocha import Server, mocha, relate, relations, room
from pfljax.conformance import Case, toy
from pfljax.core.keys import derive
from pfljax.core.minibatches import minibatch
from pfljax.core.types import Local

SENT = (toy.LINEAR + 4, toy.LINEAR)
CONFORMANCE = [
    Case("mocha", bytes=SENT),
    Case("mocha", {"lam": 0.1, "period": 3}, bytes=SENT),
]

TRAIN, _ = toy.ragged()
CLIENTS, MOST, PERIOD = len(toy.SIZES), max(toy.SIZES), 2
LOCAL = Local(0.0, batch_size=4, epochs=1)
EPOCH = -(-np.array(toy.SIZES) // 4)  # steps that visit each example once
NEVER = 10**6  # rounds of which no period ends
KEY = jax.random.key(3)


@cache
def task(classes=3):
    return toy.traced_once(models.task(models.logistic(classes), (3,)))


@cache
def begun(classes=3):
    """(server, alpha) before the first round."""
    method = mocha(task(classes), LOCAL, max_examples=MOST)
    params = task(classes).init(KEY)
    alpha = method.init_client(params, jnp.int32(0), KEY)
    return method.init(params, CLIENTS, KEY), jnp.stack([alpha] * CLIENTS)


@cache
def program(classes, period):
    """One round of all clients, the steps and the presence of each given."""

    @jax.jit
    def play(server, alpha, round_, lam, steps, mask):
        method = mocha(task(classes), LOCAL, lam=lam, period=period, max_examples=MOST)

        def one(client_id, alpha, steps, offset, size):
            key = jax.random.fold_in(jax.random.fold_in(KEY, round_), client_id)
            turn = toy.turn(key, round_, steps, client_id, CLIENTS)
            message = method.message(turn, server, alpha)
            pool = TRAIN.examples._replace(y=TRAIN.examples.y % classes)
            data = TRAIN._replace(examples=pool, offset=offset, size=size)
            return method.train(turn, message, alpha, data)

        ids = jnp.arange(CLIENTS)
        spans = TRAIN.offset, TRAIN.size
        trained, changes, metrics = jax.vmap(one)(ids, alpha, steps, *spans)
        cohort = toy.cohort(mask, CLIENTS, round_)
        kept = jnp.where(mask[:, None, None] > 0, trained, alpha)
        return method.aggregate(server, changes, cohort), kept, metrics

    return play


def played(rounds, lam, sigma=None, classes=3, period=NEVER, steps=EPOCH, mask=None):
    """(server, alpha, metrics) after each round; steps i[C] or by round."""
    server, alpha = begun(classes)
    if sigma is not None:
        server = server._replace(sigma=jnp.float32(sigma))
    steps = np.broadcast_to(steps, (rounds, CLIENTS))
    mask = np.broadcast_to(1.0 if mask is None else mask, (rounds, CLIENTS))
    states = []
    for r in range(rounds):
        given = jnp.int32(r), lam, jnp.asarray(steps[r]), jnp.float32(mask[r])
        server, alpha, metrics = program(classes, period)(server, alpha, *given)
        states.append((server, alpha, metrics))
    return states


def examples(t, classes=3):
    """(x with a 1 for the bias, y of each class) of client t."""
    data = toy.one(TRAIN, t)
    own = slice(int(data.offset), int(data.offset + data.size))
    x = np.c_[np.asarray(data.examples.x, np.float64)[own], np.ones(int(data.size))]
    labels = np.asarray(data.examples.y)[own] % classes
    return x, 2 * np.eye(classes)[labels] - 1


def flat(params):
    """The weights and the bias of each class, [..., K, d + 1]."""
    head = params["head"]
    return np.concatenate([head["kernel"], np.asarray(head["bias"])[..., None]], -1)


@jax.jit
def batches(round_, t, span):
    """Minibatches of row numbers, as client t meets them; more than it ever takes."""
    key = jax.random.fold_in(jax.random.fold_in(KEY, round_), t)
    data = number_examples(TRAIN._replace(offset=span[0], size=span[1]))
    order = derive(key, "minibatches")
    return jax.vmap(lambda step: minibatch(data, step, order, 4))(jnp.arange(9))


def visits(round_, t, steps):
    """The examples that client t visits, in their order, step by step."""
    span = TRAIN.offset[t], TRAIN.size[t]
    batch = batches(jnp.int32(round_), jnp.int32(t), span)
    numbers = zip(np.asarray(batch.y), np.asarray(batch.mask), strict=True)
    return [y[mask > 0] for y, mask in numbers][:steps]


def root(w):
    """(W^T W)^(1/2) over its trace, by eigenvalues, in float64."""
    values, vectors = np.linalg.eigh(w @ w.T)
    matrix = (vectors * np.sqrt(np.maximum(values, 1e-7))) @ vectors.T
    return matrix / np.trace(matrix)


def primal(w, sigma, lam, classes=3):
    """The objective of all clients, w [C, K, d + 1]."""
    losses = 0
    for t in range(CLIENTS):
        x, y = examples(t, classes)
        losses += np.maximum(1 - y * (x @ w[t].T), 0).mean(0).sum()
    # Singular where models are alike: by its own solution, not by an inverse.
    square = sum(
        np.vdot(w[:, c], np.linalg.solve(sigma, w[:, c])) for c in range(classes)
    )
    return losses + lam / 2 * square


def sums(alpha, classes=3):
    """b of each client, [C, K, d + 1]."""
    pairs = ((examples(t, classes)[0], np.float64(alpha[t])) for t in range(CLIENTS))
    return np.stack([a[: len(x)].T @ x / len(x) for x, a in pairs])


def dual(alpha, sigma, lam, classes=3):
    """The objective of the dual variables [C, N, K]."""
    b = sums(alpha, classes)
    gains = sum(
        (np.float64(alpha[t])[: toy.SIZES[t]] * examples(t, classes)[1]).mean(0).sum()
        for t in range(CLIENTS)
    )
    return gains - np.einsum("tkd,ts,skd->", b, sigma, b) / (2 * lam)


def solved(sigma, lam):
    """The best models, [C, K, d + 1]: the dual by a solver of boxes, all at once."""
    x, y = zip(*map(examples, range(CLIENTS)), strict=True)
    owner = np.repeat(np.arange(CLIENTS), toy.SIZES)
    size = np.array(toy.SIZES)[owner]
    x, y = np.concatenate(x) / size[:, None], np.concatenate(y)
    kernel = (x @ x.T) * sigma[owner][:, owner] / lam
    best = []
    for c in range(3):
        signed = kernel * np.outer(y[:, c], y[:, c])

        def objective(a, signed=signed):
            slope = signed @ a - 1 / size
            return (a @ (signed @ a) / 2 - (a / size).sum()), slope

        bounds = [(0, 1)] * len(x)
        limits = {"maxiter": 5000, "maxfun": 50000, "ftol": 1e-15, "gtol": 1e-10}
        found = minimize(
            objective, np.zeros(len(x)), jac=True, bounds=bounds, options=limits
        )
        each = (found.x * y[:, c])[:, None] * x
        b = np.stack([each[owner == t].sum(0) for t in range(CLIENTS)])
        best.append(sigma @ b / lam)
    return np.stack(best, 1)


def groups_of_two():
    """A relation matrix: clients in two groups that oppose each other."""
    side = np.where(np.arange(CLIENTS) < 5, 1.0, -1.0)
    return (np.eye(CLIENTS) + 2 * np.outer(side, side)) / (3 * CLIENTS)


# Of each round, who does how much: everything, a part, nothing; and who drops out.
WORK = np.array([[1, 5, 2, 3, 2, 3, 4, 1], [2, 2, 0, 1, 1, 9, 1, 1], [1] * 8, EPOCH])
THERE = np.array(
    [[1.0] * 8, [1, 1, 1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1], [1] * 8]
)


def ascended(t, r, w, alpha, stretch):
    """(alpha, loss) of client t after its visits, in NumPy; w [K, d + 1]."""
    x, y = examples(t)
    alpha, move, losses = alpha.copy(), np.zeros_like(w), []
    for step in visits(r, t, WORK[r, t]):
        missing = []
        for j in step:
            for c in range(3):
                margin = y[j, c] * (x[j] @ (w[c] + stretch * move[c]))
                missing.append(max(1 - margin, 0))
                best = len(x) * (1 - margin) / (stretch * (x[j] @ x[j]))
                a = y[j, c] * np.clip(best + alpha[j, c] * y[j, c], 0, 1)
                move[c] += (a - alpha[j, c]) * x[j] / len(x)
                alpha[j, c] = a
        losses.append(np.mean(missing))
    return alpha, np.mean(losses or [0])


def test_mocha_against_numpy():
    """The loop of the paper, visit by visit; Sigma is set anew after two rounds."""
    lam, rho, sigma = 0.05, 1.0, np.eye(CLIENTS) / CLIENTS
    alpha, w = np.zeros((CLIENTS, MOST, 3)), np.zeros((CLIENTS, 3, 4))
    states = played(4, lam, period=PERIOD, steps=WORK, mask=THERE)
    for r, (server, duals, metrics) in enumerate(states):
        for t in range(CLIENTS):
            stretch = rho * sigma[t, t] / lam
            new, loss = ascended(t, r, w[t], alpha[t], stretch)
            np.testing.assert_allclose(metrics["loss"][t], loss, rtol=1e-3)
            alpha[t] = new if THERE[r, t] else alpha[t]
        w = np.einsum("ts,skd->tkd", sigma, sums(alpha)) / lam
        np.testing.assert_allclose(duals, alpha, atol=2e-4)
        np.testing.assert_allclose(flat(server.b), sums(alpha), atol=1e-4)
        np.testing.assert_allclose(flat(server.models.params), w, rtol=1e-3, atol=1e-3)
        if (r + 1) % PERIOD == 0:
            sigma = root(w.reshape(CLIENTS, -1))
            rho = (np.abs(sigma).sum(1) / np.diag(sigma)).max()
            # What is sent from now on is of the new Sigma.
            w = np.einsum("ts,skd->tkd", sigma, sums(alpha)) / lam
        np.testing.assert_allclose(server.sigma, sigma, atol=1e-5)
    assert rho > 1.5


@pytest.mark.slow
def test_the_gap_closes_at_the_best_models():
    """The dual never falls; at its end primal and dual meet, at a solver's models."""
    sigma, lam = groups_of_two(), 0.05
    states = played(300, lam, sigma)
    duals = [dual(alpha, sigma, lam) for _, alpha, _ in states[:40]]
    assert (np.diff([0, *duals]) > -1e-6).all()
    server, alpha, _ = states[-1]
    w = flat(server.models.params)
    first = primal(np.zeros_like(w), sigma, lam)
    reached = primal(w, sigma, lam)
    assert reached < 0.9 * first
    assert reached - dual(alpha, sigma, lam) == pytest.approx(0, abs=1e-3 * first)
    np.testing.assert_allclose(w, solved(sigma, lam), atol=0.02)
    assert float(room(server.sigma)) == pytest.approx((1 + 2 * CLIENTS) / 3, rel=1e-5)


@pytest.mark.slow
def test_nobody_related_are_machines_of_their_own():
    """With Sigma = I / C each minimises its own  mean hinge + lam C / 2 |w_t|^2."""
    lam = 0.02
    server, _, _ = played(150, lam)[-1]
    w = flat(server.models.params)
    np.testing.assert_allclose(w, solved(np.eye(CLIENTS) / CLIENTS, lam), atol=0.02)
    for t in (0, 5):
        x, y = examples(t)

        def objective(v, x=x, y=y):
            margins = y[:, 0] * (x @ v)
            return np.maximum(1 - margins, 0).mean() + lam * CLIENTS / 2 * v @ v

        best = objective(w[t, 0])
        away = np.random.default_rng(0).normal(size=(200, 4)) * 0.1
        assert all(objective(w[t, 0] + step) > best - 1e-5 for step in away)


@pytest.mark.slow
def test_a_large_penalty_leaves_the_mean_of_the_examples():
    """All dual variables are 1, after one visit each."""
    lam, sigma = 1e4, groups_of_two()
    server, alpha, _ = played(1, lam, sigma)[-1]
    means = np.stack([y.T @ x / len(x) for x, y in map(examples, range(CLIENTS))])
    wanted = np.einsum("ts,skd->tkd", sigma, means) / lam
    np.testing.assert_allclose(flat(server.models.params), wanted, rtol=1e-4, atol=1e-9)
    for t in range(CLIENTS):
        np.testing.assert_allclose(np.abs(alpha[t, : toy.SIZES[t]]), 1)
        np.testing.assert_array_equal(alpha[t, toy.SIZES[t] :], 0)


def test_a_small_penalty_has_no_loss_where_examples_can_be_separated():
    """Clients of at most four examples: any labels of these are."""
    server, _, _ = played(150, 1e-4)[-1]
    for t in (0, 7):
        x, y = examples(t)
        margins = y * (x @ flat(server.models.params)[t].T)
        assert margins.min() > 0.99


def test_parts_of_the_work_lead_to_the_same_end():
    """A random number of steps a round, none of them for who drops out."""
    rng = np.random.default_rng(0)
    sigma, lam = groups_of_two(), 0.05
    steps = rng.integers(0, EPOCH + 1, (400, CLIENTS))
    mask = rng.random((400, CLIENTS)) > 0.2
    server, alpha, _ = played(400, lam, sigma, steps=steps, mask=mask)[-1]
    w = flat(server.models.params)
    gap = primal(w, sigma, lam) - dual(alpha, sigma, lam)
    assert 0 <= gap + 1e-4 < 2e-3 * CLIENTS * 3


def test_no_step_changes_nothing():
    server, alpha, _ = played(3, 0.05)[-1]
    nobody, same, metrics = program(3, NEVER)(
        server, alpha, jnp.int32(3), 0.05, jnp.zeros(CLIENTS, int), jnp.ones(CLIENTS)
    )
    toy.assert_same((nobody.b, same), (server.b, alpha))
    np.testing.assert_array_equal(metrics["loss"], 0)


@pytest.mark.slow
def test_the_objective_of_models_and_relations_falls():
    """Period by period; and relations are those of the models that clients have."""
    lam, rounds, period = 0.02, 160, 40
    states = played(rounds, lam, period=period)
    objectives, sigma = [], np.eye(CLIENTS) / CLIENTS
    for server, _, _ in states[period - 1 :: period]:
        w = flat(server.models.params)
        objectives.append(primal(w, sigma, lam))
        sigma = np.float64(server.sigma)
        np.testing.assert_allclose(sigma, root(w.reshape(CLIENTS, -1)), atol=1e-5)
        objectives.append(primal(w, sigma, lam))
    assert (np.diff(objectives) < 1e-3).all()
    assert objectives[-1] < objectives[0] - 0.1


@pytest.mark.parametrize(
    "shape", [(5, 12), pytest.param((12, 5), marks=pytest.mark.slow)]
)
def test_sigma_against_eigenvalues(shape):
    w = np.random.default_rng(0).normal(size=(*shape,)).astype(np.float32)
    w[2] = 0
    found = relate({"a": jnp.asarray(w[:, :2]), "b": jnp.asarray(w[:, None, 2:])})
    np.testing.assert_allclose(found, root(np.float64(w)), atol=1e-6)
    assert float(jnp.trace(found)) == pytest.approx(1)
    assert float(jnp.linalg.eigvalsh(found).min()) > 0


def test_models_of_zeros_are_not_related():
    np.testing.assert_allclose(relate(jnp.zeros((4, 9))), np.eye(4) / 4, rtol=1e-6)


def test_relations_are_correlations():
    """Two groups of parallel models, of any lengths."""
    w = jnp.array([[1.0, 0, 0], [3, 0, 0], [0, 0.5, 0], [0, -2, 0]])
    server = Server(Models(w, jnp.ones(4)), b=w, sigma=relate(w))
    wanted = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, -1], [0, 0, -1, 1]]
    np.testing.assert_allclose(relations(server), wanted, atol=0.01)


@pytest.mark.slow
def test_two_classes_are_one_problem_twice():
    """The paper's, of one w_t a client, whose matrix is the same."""
    server, alpha, _ = played(100, 0.02, classes=2, period=50)[-1]
    w = flat(server.models.params)
    np.testing.assert_allclose(w[:, 0], -w[:, 1], atol=1e-5)
    np.testing.assert_allclose(alpha[..., 0], -alpha[..., 1], atol=1e-5)
    np.testing.assert_allclose(server.sigma, root(np.float64(w[:, 0])), atol=1e-3)


def test_who_never_sent_is_evaluated_with_the_mean():
    """Client 2 of the run, and one of no run; the others by their own models."""
    method = mocha(task(), LOCAL)
    w = jax.random.normal(KEY, (4, 3))
    server = Server(Models(w, jnp.array([1.0, 1, 0, 1])), b=w, sigma=jnp.eye(4) / 4)
    mean = np.asarray(w)[[0, 1, 3]].mean(0)
    for client_id, wanted in ((2, mean), (4, mean), (1, w[1])):
        turn = toy.turn(KEY, client_id=client_id)
        for model in (
            method.personal(turn, server, (), None),
            method.newcomer(turn, server, None),
        ):
            np.testing.assert_allclose(model, wanted, rtol=1e-6)


@pytest.mark.parametrize("option", ["lam", "period"])
def test_an_option_of_zero_is_refused(option):
    with pytest.raises(ValueError, match=f"^mocha: {option} is 0; expected"):
        mocha(task(), LOCAL, **{option: 0})
