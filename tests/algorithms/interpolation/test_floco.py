import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import engine, landscape, selection
from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.interpolation import _simplex as simplex
from pfljax.algorithms.interpolation.floco import Client, Server, floco
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.types import Local
from pfljax.evaluation import metrics, programs

M = 3
SENT = toy.BODY + 4 * (M * 12 + 3)  # the head has 12 weights and 3 biases
CONFORMANCE = [
    Case("floco", {"vertices": M, "tau": 2}, bytes=(SENT + 4 * M + 1, SENT)),
    Case(
        "floco",
        {"vertices": M, "tau": 1, "lam": 0.5, "radius": 0.4},
        bytes=(SENT + 4 * M + 1, SENT),
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
    """Of quadratic client k: the body's, and alpha_m times the head's a vertex."""
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


@pytest.mark.parametrize("lam", [pytest.param(None, marks=pytest.mark.slow), LAM])
def test_floco_against_numpy(lam):
    """Rounds 0 and 1 anywhere on the simplex, 2 and 3 near the clients' points."""
    states, ids_of = toy.run_quadratic(floco, 4, vertices=M, tau=2, radius=0.5, lam=lam)
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
        counts = toy.COUNTS[ids]
        w = tuple(np.average(leaf, 0, counts) for leaf in zip(*uploads, strict=True))
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
            beta = simplex.place_clients(after.server.changes, M)
            assert float(np.abs(beta - 1 / M).max()) > 0.1
            assert heard.sum() >= 3
        if after.round >= 2:
            np.testing.assert_allclose(after.server.beta, beta, atol=1e-6)


def test_points_wait_for_a_round_in_which_a_client_reports():
    """Nobody reports in round tau; the points come in the next one, and then stay."""

    def work(round_, key, ids, steps):
        return steps, jnp.where(round_ == 1, 0.0, 1.0) * jnp.ones(3)

    def update(round_, cohort, reports):
        return round_ + 1

    select = selection.uniform(3, 4)._replace(
        init=lambda: jnp.int32(0),
        choose=lambda round_, key: jnp.array([0, 1, 2]),
        work=work,
        update=update,
        full=False,
    )
    local = toy.full_batch()
    method = floco(TASK, local, vertices=M, tau=2, radius=0.5)
    train = toy.quadratic_clients()
    states, _ = toy.run_rounds(method, TASK, local, train, 4, select=select)
    betas = [np.asarray(state.server.beta) for state in states]
    for beta in betas[:3]:
        np.testing.assert_allclose(beta, np.full((4, M), 1 / M))
    assert np.abs(betas[3] - 1 / M).max() > 0.1
    np.testing.assert_array_equal(betas[3], betas[4])
    assert [bool(state.server.placed) for state in states] == [False] * 3 + [True] * 2


def server_of(beta, seed=0):
    """A server of the quadratic clients with points beta [4, M]."""
    w = simplex.first(TASK, TASK.init(KEY), M, jax.random.key(seed))
    nothing = affinity.first_models(tree.zeros(simplex.vertex_leaves(TASK, w)), 4)
    return Server(w, nothing, jnp.asarray(beta, jnp.float32), jnp.bool_(True))


def client_of(v=(), begun=False):
    return Client(v, simplex.centre(M), jnp.bool_(begun))


@pytest.mark.parametrize("lam", [None, LAM])
def test_a_client_is_evaluated_at_its_point_and_others_at_the_centre(lam):
    method = floco(TASK, toy.full_batch(), vertices=M, lam=lam)
    server = server_of([[0.2, 0.3, 0.5]] * 4)
    body, head = parts(server.w)
    own = server_of(server.beta, seed=1).w if lam else ()
    client = client_of(own, begun=True)
    turn = toy.turn(KEY, 60, client_id=2)
    wanted = at((body, parts(own)[1] if lam else head), np.array([0.2, 0.3, 0.5]))
    found = method.personal(turn, server, client, None)
    np.testing.assert_allclose(toy.flat(found), wanted, rtol=1e-5)
    middle = at((body, head), np.full(M, 1 / M))
    np.testing.assert_allclose(toy.flat(method.server_model(server)), middle, rtol=1e-5)
    # A client of no run, whose own simplex nobody has trained.
    turn, unseen = (
        toy.turn(KEY, 60, client_id=4),
        method.init_client(TASK.init(KEY), 4, KEY),
    )
    found = method.personal(turn, server, unseen, None)
    np.testing.assert_allclose(toy.flat(found), middle, rtol=1e-5)
    a, b = method.endpoints(server, client._replace(beta=server.beta[2]))
    np.testing.assert_allclose(toy.flat(a), middle, rtol=1e-5)
    np.testing.assert_allclose(toy.flat(b), wanted, rtol=1e-5)


def test_at_the_centre_the_head_moves_by_a_share_of_its_rate(monkeypatch):
    """Its mean steps by rate / M along the slope, and the body as of FedAvg."""
    monkeypatch.setattr(simplex, "draw", lambda key, count: simplex.centre(count))
    method = floco(TASK, toy.full_batch(epochs=1), vertices=M)
    server, data = (
        server_of(np.full((4, M), 1 / M)),
        toy.one(toy.quadratic_clients(), 2),
    )
    turn = toy.turn(KEY, 0, 1, client_id=2)
    message = method.message(turn, server, client_of())
    _, w, _ = method.train(turn, message, client_of(), data)
    before = toy.flat(simplex.point(TASK, server.w))
    rates = toy.RATE * np.array([1, 1, 1 / M])
    wanted = before - rates * toy.gradient(2, before)
    np.testing.assert_allclose(toy.flat(simplex.point(TASK, w)), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("lam", "ends"), [(0.0, "apart"), pytest.param(1e4, "tied", marks=pytest.mark.slow)]
)
def test_the_own_simplex_is_alone_without_pull_and_tied_by_a_large_one(lam, ends):
    local = toy.full_batch()._replace(learning_rate=1e-4)
    method = floco(TASK, local, vertices=M, lam=lam)
    data, turn = toy.one(toy.quadratic_clients(), 2), toy.turn(KEY, 0, 3, client_id=2)
    client = client_of(server_of(np.eye(M)[[0] * 4], seed=7).w, begun=True)
    trained = []
    for seed in (1, 2):
        server = server_of(np.full((4, M), 1 / M), seed)
        message = method.message(turn, server, client)
        trained.append((method.train(turn, message, client, data)[0].v, server.w))
    (first, w), (second, _) = trained
    if ends == "apart":
        toy.assert_same(first, second)
    else:
        toy.assert_close(first, w, 1e-3)


@pytest.mark.slow
def test_endpoints_feed_the_landscape():
    """From the server's model to that of the client."""
    task, local = toy.classifier(), Local(0.3, batch_size=4)
    train, test = toy.ragged(held_out=5)
    count = len(toy.SIZES)
    method = floco(task, local, vertices=M)
    setting = engine.Setting(method, local, selection.uniform(4, count))
    state = engine.init(setting, task, count, KEY)
    beta = jax.random.dirichlet(KEY, jnp.ones(M), (count,))
    server = state.server._replace(beta=beta)
    clients = state.clients._replace(beta=beta)
    state = state._replace(server=server, clients=clients)
    a, b = jax.vmap(method.endpoints, (None, 0))(server, clients)
    path = landscape.line(task, a, b, test, t=(0, 0.5, 1), batch_size=4)
    ids = jnp.arange(count)
    personal = programs.evaluate_clients(setting, "personal")(
        state, clients, ids, train, test
    )
    of_server = programs.evaluate_server(setting, task)(server, test)
    for name in metrics.METRICS:
        np.testing.assert_allclose(path.metrics[name][:, 0], of_server[name], atol=1e-5)
        np.testing.assert_allclose(path.metrics[name][:, 2], personal[name], atol=1e-5)
    assert np.abs(path.metrics["loss"][:, 2] - path.metrics["loss"][:, 0]).min() > 1e-4


def test_more_vertices_than_clients_are_one_line():
    with pytest.raises(ValueError, match="floco: vertices is 9; expected at most 8"):
        floco(TASK, toy.full_batch(), vertices=9, num_clients=8)
