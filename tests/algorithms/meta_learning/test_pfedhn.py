import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.meta_learning import _hypernetwork as hypernetwork
from pfljax.algorithms.meta_learning.pfedhn import Learned, pfedhn
from pfljax.conformance import Case, toy
from pfljax.core import server_step, tree
from pfljax.core.perceptron import Layer

CONFORMANCE = [
    Case("pfedhn", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("pfedhn", {"personal_head": True, "adapt": 2}, bytes=(toy.BODY, toy.BODY)),
]

TASK = toy.quadratic()
KEY = jax.random.key(0)
LR = 0.3
PLAIN = {"server_lr": LR, "server_optimizer": "sgd"}


def linear(task, local, **options):
    """pFedHN with h(v) = b + (v K + c) W, of which W, K and c are drawn."""
    method = pfedhn(task, local, hidden=4, **options)
    optimizer = server_step.by_name(options["server_optimizer"], options["server_lr"])

    def init(params, num_clients, key):
        server = method.init(params, num_clients, key)
        h, v = server.learned.w
        draw = iter(jax.random.split(key, 3))

        def drawn(like):
            return jax.random.normal(next(draw), like.shape) / 2

        layer = Layer(*map(drawn, h.layers[0]))
        kernel = toy.unflat(drawn(toy.flat(h.kernel)))
        learned = Learned(h._replace(layers=(layer,), kernel=kernel), v)
        return server._replace(learned=server_step.first(optimizer, learned))

    return method._replace(init=init)


def parts_of(learned):
    """[K, c, W, b, v] of a linear h, f64."""
    h, v = learned
    (layer,) = h.layers
    leaves = [layer.kernel, layer.bias, toy.flat(h.kernel), toy.flat(h.bias), v]
    return [np.float64(leaf) for leaf in leaves]


def made(parts, k):
    K, c, W, b, v = parts
    return b + (v[k] @ K + c) @ W


def slopes(parts, changes):
    """The gradient of mean_k <h(v_k), d_k> in all parts, of `changes` {k: d_k}."""
    K, c, W, _, v = parts
    total = [np.zeros_like(part) for part in parts]
    for k, d in changes.items():
        z, of_z = v[k] @ K + c, W @ d
        terms = [np.outer(v[k], of_z), of_z, np.outer(z, d), d]
        for part, term in zip(total, terms, strict=False):
            part += term / len(changes)
        total[4][k] = K @ of_z / len(changes)
    return total


def test_a_linear_hypernetwork_against_numpy():
    """The absent are moved by momentum alone."""
    momentum = 0.9
    optimizer = f"sgd:momentum={momentum}"
    options = {"server_lr": LR, "server_optimizer": optimizer}
    states, drawn = toy.run_quadratic(linear, **options)
    parts = parts_of(states[0].server.learned.w)
    trace = [np.zeros_like(part) for part in parts]
    for ids, state in zip(drawn, states[1:], strict=True):
        changes = {}
        for k in ids:
            theta = made(parts, k)
            trained = toy.descend(theta, lambda x, k=k: toy.gradient(k, x))
            changes[k] = theta - trained
        for number, slope in enumerate(slopes(parts, changes)):
            trace[number] = momentum * trace[number] + slope
            parts[number] = parts[number] - LR * trace[number]
        for found, part in zip(parts_of(state.server.learned.w), parts, strict=True):
            np.testing.assert_allclose(found, part, rtol=1e-4, atol=1e-5)
    personal = pfedhn(TASK, toy.full_batch()).personal
    nothing = {"body": None, "head": None}
    for k in range(4):
        evaluated = personal(toy.turn(client_id=k), states[-1].server, nothing, ())
        np.testing.assert_allclose(toy.flat(evaluated), made(parts, k), rtol=1e-4)


@pytest.mark.slow
def test_a_step_is_gradient_descent_end_to_end():
    """Of one client and one local step of rate a: by the rate a server_lr."""
    local = toy.full_batch(epochs=1)
    method = pfedhn(TASK, local, hidden=5, **PLAIN)
    states, _ = toy.run_rounds(
        method, TASK, local, toy.quadratic_clients(), 1, cohort=1
    )
    k = int(states[1].cohort[0])

    def loss(learned):
        theta = hypernetwork.apply(learned.h, learned.v[k])
        square = tree.square_norm(tree.sub(theta, toy.unflat(toy.B[k])))
        return toy.A[k] / 2 * square

    before, after = (state.server.learned.w for state in states)
    wanted = tree.axpy(-toy.RATE * LR, jax.grad(loss)(before), before)
    toy.assert_close(after, wanted, 1e-5)
    moved = np.abs(after.v - before.v).max(1) > 0
    np.testing.assert_array_equal(np.flatnonzero(moved), [k])


@pytest.mark.slow
def test_one_hot_embeddings_are_independent_clients():
    """theta_k is row k of W: of rate 1 this client's row goes to where it trained."""
    method = linear(TASK, toy.full_batch(), server_lr=1.0, server_optimizer="sgd")
    server = method.init(toy.unflat(np.zeros(3)), 4, KEY)
    h, _ = server.learned.w
    layer = Layer(bias=jnp.zeros(4), kernel=jnp.eye(4))
    learned = Learned(h._replace(layers=(layer,)), jnp.eye(4))
    server = server._replace(learned=server.learned._replace(w=learned))
    turn, data = toy.turn(KEY, 0, 3, 2), toy.one(toy.quadratic_clients(), 2)
    nothing = {"body": None, "head": None}
    theta = method.message(turn, server, nothing)
    np.testing.assert_allclose(toy.flat(theta), toy.flat(h.kernel)[2], atol=1e-6)
    _, change, _ = method.train(turn, theta, nothing, data)
    cohort = toy.cohort([1])._replace(ids=jnp.asarray([2]))
    uploads = jax.tree.map(lambda leaf: leaf[None], change)
    after = method.aggregate(server, uploads, cohort).learned.w
    wanted = toy.flat(h.kernel).copy()
    wanted[2] = toy.descend(wanted[2], lambda x: toy.gradient(2, x))
    np.testing.assert_allclose(toy.flat(after.h.kernel), wanted, atol=1e-5)


def test_equal_embeddings_make_equal_models():
    method = pfedhn(TASK, toy.full_batch(), hidden=5)
    server = method.init(toy.unflat([1.0, 2, 3]), 4, KEY)
    models = [toy.flat(sent(method, server, k)) for k in range(4)]
    assert len(np.unique(np.round(models, 3), axis=0)) == 4
    h, v = server.learned.w
    learned = Learned(h, v.at[1].set(v[3]))
    server = server._replace(learned=server.learned._replace(w=learned))
    np.testing.assert_array_equal(
        toy.flat(sent(method, server, 1)), toy.flat(sent(method, server, 3))
    )


def sent(method, server, k):
    nothing = {"body": None, "head": None}
    return method.message(toy.turn(client_id=k), server, nothing)


def test_without_local_steps_momentum_alone_moves():
    """By .9 of the last step; who reports no change asks for none."""
    method = pfedhn(TASK, toy.full_batch(), hidden=5)
    aggregate = jax.jit(method.aggregate)
    first = method.init(toy.unflat([1.0, -2, 3]), 4, KEY)
    changes = toy.unflat(np.arange(12.0).reshape(4, 3))
    everybody = toy.cohort([1, 1, 1, 1])
    second = aggregate(first, changes, everybody)
    third = aggregate(second, tree.zeros(changes), everybody)
    step = tree.sub(second.learned.w, first.learned.w)
    wanted = tree.axpy(0.9, step, second.learned.w)
    toy.assert_close(third.learned.w, wanted, 1e-5)
    assert np.abs(step.v).min() > 0


def test_a_newcomer_steps_its_embedding_alone():
    """From the mean of all, by the exchanges of who takes part."""
    method = linear(TASK, toy.full_batch(), adapt=2, **PLAIN)
    server = method.init(toy.unflat([1.0, -2, 3]), 4, KEY)
    parts = parts_of(server.learned.w)
    parts[4] = parts[4].mean(0, keepdims=True)
    data = toy.one(toy.quadratic_clients(), 1)
    evaluated = method.newcomer(toy.turn(KEY, steps=3, client_id=7), server, data)
    for _ in range(2):
        theta = made(parts, 0)
        change = theta - toy.descend(theta, lambda x: toy.gradient(1, x))
        parts[4] = parts[4] - LR * slopes(parts, {0: change})[4]
    np.testing.assert_allclose(
        toy.flat(evaluated), made(parts, 0), rtol=1e-4, atol=1e-5
    )


def test_a_personal_head_stays_with_its_client():
    """Body and head are trained jointly, from h(v_k) and the client's own."""
    method = pfedhn(TASK, toy.full_batch(), hidden=5, personal_head=True, **PLAIN)
    states, _ = toy.run_rounds(
        method, TASK, toy.full_batch(), toy.quadratic_clients(), 1, cohort=2
    )
    before, after = states
    ids = np.asarray(after.cohort)
    heads, first = np.asarray(after.clients["head"]), np.asarray(before.clients["head"])
    for k in range(4):
        own = first[k]
        if k in ids:
            own = toy.descend(own, lambda x, k=k: toy.A[k] * (x - toy.B[k, 2:]))
        np.testing.assert_allclose(heads[k], own, rtol=1e-5)
        kept = {"body": None, "head": heads[k]}
        evaluated = method.personal(toy.turn(client_id=k), after.server, kept, ())
        np.testing.assert_array_equal(evaluated["head"], heads[k])
    body = tree.sub(after.server.learned.w.h.bias, before.server.learned.w.h.bias)
    assert body["head"] is None
    assert np.abs(body["body"]).max() > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"server_lr": 0.0}, r"^pfedhn: server_lr is 0\.0; expected a finite number"),
        ({"hidden": 0}, "^pfedhn: hidden is 0; expected"),
        ({"adapt": -1}, "^pfedhn: adapt is -1; expected"),
        (
            {"server_optimizer": "sdg"},
            "unknown server optimizer 'sdg'.* did you mean 'sgd'",
        ),
    ],
)
def test_a_wrong_option_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        pfedhn(TASK, toy.full_batch(), **options)
