"""The methods in the form of SuPerFed's code, and APFL of two other codes."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from checkout import EXPERIMENTS
from pfljax import algorithms, conformance, models
from pfljax.conformance import Case, toy
from pfljax.conformance.laws import COMPILING, LAWS
from pfljax.core import tree
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local
from pfljax.models.layers import BatchNorm, flatten

# Those that compile nothing of their own: these are forms of methods that pass all.
QUICK = {number: law for number, law in LAWS.items() if number not in COMPILING}
LAM, MU, MOMENTUM = 2.0, 0.4, 0.6
BODY, WHOLE = toy.BODY, toy.WHOLE


def form(name):
    """The name of a method of the study's folder."""
    return f"{EXPERIMENTS}/superfed_kdd22/methods/{name}.py:{name}"


CASES = [
    Case(form("fedavg_code"), bytes=(WHOLE, WHOLE)),
    Case(form("fedprox_code"), bytes=(WHOLE, WHOLE)),
    Case(form("scaffold_code"), bytes=(2 * WHOLE, 2 * WHOLE)),
    Case(form("fedper_code"), bytes=(BODY, BODY)),
    Case(form("fedrep_code"), {"head_epochs": 2}, bytes=(BODY, BODY)),
    # A weak pull: near w the direction of a strong one is a matter of rounding.
    Case(form("ditto_code"), {"lam": 0.1, "personal_epochs": 3}, bytes=(WHOLE, WHOLE)),
    Case(form("apfl_code"), {"evaluate_untrained": True}, bytes=(WHOLE, WHOLE)),
    Case(form("pfedme_code"), {"lam": 0.5}, bytes=(WHOLE, WHOLE)),
    Case(form("superfed_code"), {"mixing": "layer"}, bytes=(WHOLE, WHOLE)),
    Case(form("apfl_fedjax"), bytes=(WHOLE, WHOLE)),
    Case(form("apfl_fedtorch"), bytes=(WHOLE, WHOLE)),
]


def method(name):
    """The method of this name, in the form of a code or of pfljax."""
    is_known = name in algorithms.families()
    return algorithms.method(name if is_known else form(name))


def with_momentum(name):
    """The method by SGD with momentum."""
    optimizer = sgd(MOMENTUM)
    return lambda task, local, **options: method(name)(
        task, local._replace(optimizer=optimizer), **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_a_method_holds_to_the_laws(case):
    failed = [str(v) for v in conformance.check(case, QUICK) if v.error is not None]
    assert not failed, failed


def test_every_method_of_the_tables_has_a_case():
    protocol = importlib.import_module("protocol")
    used = {row.algorithm for row in protocol.METHODS.values()} - {"lg_fedavg"}
    assert used <= {case.name for case in CASES}


def unit(change):
    """Each tensor (the first two coordinates, the third) over its norm; 0 at 0."""
    return np.concatenate(
        [part / max(np.linalg.norm(part), 1e-30) for part in (change[:2], change[2:])]
    )


def test_fedprox_against_numpy():
    states, drawn = toy.run_quadratic(method("fedprox_code"), mu=MU)
    w = toy.flat(states[0].server)
    for ids, state in zip(drawn, states[1:], strict=True):
        slope = lambda x, k, w=w: toy.gradient(k, x) + MU * unit(x - w)  # noqa: E731
        uploads = [toy.descend(w, lambda x, k=k, f=slope: f(x, k)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)


def test_ditto_against_numpy():
    states, drawn = toy.run_quadratic(method("ditto_code"), lam=LAM)
    w, v = toy.flat(states[0].server), toy.flat(states[0].clients)
    for ids, state in zip(drawn, states[1:], strict=True):
        for k in ids:
            near = lambda x, k=k, w=w: toy.gradient(k, x) + LAM * unit(x - w)  # noqa: E731
            v[k] = toy.descend(v[k], near, 5)
        uploads = [toy.descend(w, lambda x, k=k: toy.gradient(k, x)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(toy.flat(state.clients), v, rtol=1e-4, atol=1e-4)


def test_apfl_against_numpy():
    """The mixture has the w of the round's start, and alpha stays."""
    states, drawn = toy.run_quadratic(method("apfl_code"), alpha=0.3)
    w, v = toy.flat(states[0].server), toy.flat(states[0].clients.v)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            own = w
            for _ in range(3):
                slope = toy.gradient(k, 0.3 * v[k] + 0.7 * w)
                own = own - toy.RATE * toy.gradient(k, own)
                v[k] = v[k] - toy.RATE * 0.3 * slope
            uploads.append(own)
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(toy.flat(state.clients.v), v, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.clients.alpha, 0.3, rtol=1e-6)


def test_apfl_of_fedjax_against_numpy():
    """An alpha a tensor: the first two coordinates are the body, the third the head."""
    states, drawn = toy.run_quadratic(method("apfl_fedjax"), alpha=0.3)
    w, v = toy.flat(states[0].server), toy.flat(states[0].clients.v)
    alpha = np.full((4, 3), 0.3)
    met = set()
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            if k not in met:
                v[k] = w
            met.add(k)
            own = w
            for _ in range(3):
                slope = toy.gradient(k, alpha[k] * v[k] + (1 - alpha[k]) * own)
                along = slope * (v[k] - own)
                own = own - toy.RATE * toy.gradient(k, own)
                v[k] = v[k] - toy.RATE * slope
                for tensor in ([0, 1], [2]):
                    moved = alpha[k, tensor] - toy.RATE * along[tensor].sum()
                    alpha[k, tensor] = np.clip(moved, 0, 1)
            uploads.append(own)
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        clients = state.clients
        seen = sorted(met)
        found = toy.flat(clients.v)[seen]
        np.testing.assert_allclose(found, v[seen], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(clients.alpha["body"], alpha[:, 0], rtol=1e-5)
        np.testing.assert_allclose(clients.alpha["head"], alpha[:, 2], rtol=1e-5)


def test_pfedme_against_numpy():
    """theta trains an epoch, w_k steps, and so on: 3 epochs in batches of 2 examples.

    The momentum of theta goes on from epoch to epoch, and starts anew every round.
    """
    factory = with_momentum("pfedme_code")
    states, drawn = toy.run_quadratic(factory, lam=LAM, batch_size=2)
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
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-4, atol=1e-4)
        found = toy.flat(state.clients)
        np.testing.assert_allclose(found, kept, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steps", [0, 5])
def test_pfedme_of_less_work(steps):
    """Epochs have two batches, the last of them shorter; w_k steps after each."""
    task, local = toy.quadratic(), toy.full_batch(10)._replace(batch_size=2)
    method = with_momentum("pfedme_code")(task, local, lam=LAM)
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


@pytest.mark.slow
def test_superfed_that_never_mixes_is_fedprox():
    options = {"mu": MU, "nu": 9.0, "start": 1.0, "rounds": 3}
    states, _ = toy.run_quadratic(method("superfed_code"), **options)
    same, _ = toy.run_quadratic(method("fedprox_code"), mu=MU)
    toy.assert_close(states[-1].server, same[-1].server, 1e-6)


@pytest.mark.slow
def test_superfed_is_pulled_by_a_norm():
    """At a distance of 1 a tensor, 2 mu of the square's half is twice this pull."""
    mixed = {"nu": 0.0, "start": 0.0, "rounds": 3}
    code, _ = toy.run_quadratic(method("superfed_code"), mu=MU, **mixed)
    paper, _ = toy.run_quadratic(method("superfed"), mu=MU, **mixed)
    free, _ = toy.run_quadratic(method("superfed"), mu=0.0, **mixed)
    for other in (paper, free):
        assert (
            np.abs(toy.flat(code[-1].server) - toy.flat(other[-1].server)).max() > 0.01
        )
    without, _ = toy.run_quadratic(method("superfed_code"), mu=0.0, **mixed)
    toy.assert_close(without[-1].server, free[-1].server, 1e-6)


@pytest.mark.parametrize(("name", "share"), [("ditto_code", 1), ("apfl_code", 0.25)])
def test_a_model_that_was_never_trained_is_evaluated_if_asked(name, share):
    task, local = toy.quadratic(), toy.full_batch()
    assert method(name)(task, local).newcomer is not None
    asked = method(name)(task, local, evaluate_untrained=True)
    assert asked.newcomer is None
    w, own = np.arange(3.0), np.full(3, 9.0)
    client = asked.init_client(toy.unflat(own), jnp.int32(0), jax.random.key(0))
    evaluated = asked.personal(toy.turn(), toy.unflat(w), client, None)
    np.testing.assert_allclose(toy.flat(evaluated), (1 - share) * w + share * own)


def test_a_superfed_model_that_never_mixed_is_evaluated_if_asked():
    task, local, key = toy.quadratic(), toy.full_batch(), jax.random.key(0)
    build = method("superfed_code")
    asked = build(task, local, start=0.5, rounds=4, evaluate_untrained=True)
    w = toy.unflat(np.arange(3.0))
    client = asked.init_client(w, jnp.int32(0), key)
    own = toy.flat(task.init(key))
    assert np.abs(own - toy.flat(w)).max() > 1e-3
    np.testing.assert_allclose(toy.flat(asked.endpoints(w, client)[1]), own)
    evaluated = toy.flat(asked.personal(toy.turn(key, 4, 3), w, client, None))
    np.testing.assert_allclose(evaluated, (own + toy.flat(w)) / 2, rtol=1e-6)


def test_the_gradient_of_the_norms_at_zero_is_zero():
    method("fedprox_code")  # its folder is on the path from now on
    code = importlib.import_module("_code")
    a = {"x": jnp.asarray([3.0, 4.0]), "y": jnp.asarray(-2.0)}
    assert code.norms(a) == 7  # 5 + 2, by tensor
    assert code.norms({}) == 0
    toy.assert_same(jax.grad(code.norms)(tree.zeros(a)), tree.zeros(a))
    np.testing.assert_allclose(jax.grad(code.norms)(a)["x"], [0.6, 0.8], rtol=1e-6)


def biases(state):
    """(those of batch normalisation, all other leaves) of a state, by path."""
    leaves = tree.paths(state)
    own = {path: leaf for path, leaf in leaves.items() if path.endswith("bias")}
    return own, {path: leaf for path, leaf in leaves.items() if path not in own}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ditto", "scaffold"])
def test_a_server_keeps_its_biases_and_averages_the_rest(name):
    body = nn.Sequential([BatchNorm(), flatten])
    head = nn.Dense(3, use_bias=False)
    task = models.task(models.Network(body, head), (1, 1, 2))
    local = Local(0.1, batch_size=4, epochs=2)
    rng = np.random.default_rng(0)
    examples = rng.normal(size=(76, 1, 1, 2)), rng.integers(0, 3, 76)
    train, _ = toy.deal(*examples, toy.SIZES)
    plain, _ = toy.run_rounds(method(name)(task, local), task, local, train, rounds=2)
    code = method(f"{name}_code")(task, local)
    states, _ = toy.run_rounds(code, task, local, train, rounds=2)
    for round_ in (1, 2):
        servers = states[round_].server, plain[round_].server
        if name == "scaffold":
            servers = tuple(server.x for server in servers)
        own, others = biases(servers[0])
        theirs, averaged = biases(servers[1])
        assert own
        assert all(not leaf.any() for leaf in own.values())
        assert all(np.abs(leaf).min() > 1e-4 for leaf in theirs.values())
        if round_ == 1:  # before it nothing differed
            toy.assert_same(others, averaged)
    if name == "scaffold":  # c is the mean of all c_k, of the biases, too
        mean = jax.tree.map(lambda leaf: leaf.mean(0), states[2].clients)
        toy.assert_close(states[2].server.c, mean, 1e-6)
        assert all(np.abs(leaf).min() > 1e-4 for leaf in biases(mean)[0].values())
    if name == "ditto":  # a client's own model keeps what it learnt
        kept, _ = biases(states[2].clients)
        assert all(np.abs(leaf).min() > 1e-4 for leaf in kept.values())


def slope_of_mixed_logits(k, model):
    """Gradient of the cross-entropy of class 0 by the logits' mixture."""
    logits = toy.B[k] * model
    chance = np.exp(logits) / np.exp(logits).sum()
    return (chance - np.array([1, 0, 0])) * toy.B[k]


@pytest.mark.parametrize(
    "adaptive", [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_apfl_fedtorch_against_numpy(adaptive):
    states, drawn = toy.run_quadratic(
        method("apfl_fedtorch"), alpha=0.3, adaptive=adaptive
    )
    w, v = toy.flat(states[0].server), toy.flat(states[0].clients.v)
    alpha = np.full(4, 0.3)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            own = w
            for step in range(3):
                own = own - toy.RATE * toy.gradient(k, own)
                a = alpha[k]
                slope = slope_of_mixed_logits(k, a * v[k] + (1 - a) * own)
                turned = a * (a * slope) + (1 - a) * ((1 - a) * slope)
                v[k] = v[k] - toy.RATE * a * slope
                if adaptive and step == 0:
                    moved = (v[k] - own) @ turned + 0.02 * a
                    alpha[k] = np.clip(a - toy.RATE * moved, 0, 1)
            uploads.append(own)
        w = np.mean(uploads, axis=0)
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        kept = state.clients
        np.testing.assert_allclose(toy.flat(kept.v), v, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(kept.alpha, alpha, rtol=1e-5)


def test_a_client_is_evaluated_with_mixed_logits():
    task = toy.quadratic()
    fedtorch = method("apfl_fedtorch")(task, toy.full_batch(), alpha=0.25)
    w, v = toy.unflat([1.0, 2, 3]), toy.unflat([0.0, 4, 1])
    batch = Batch.full(jnp.ones((2, 4)))
    kept = fedtorch.init_client(v, 0, None)
    newcomer = fedtorch.newcomer(None, w, None)
    own = fedtorch.personal(None, w, kept, None)
    for model, share in ((newcomer, 0.0), (own, 0.25)):
        expected = (1 - share) * task.predict(w, batch) + share * task.predict(v, batch)
        np.testing.assert_allclose(fedtorch.predict(model, batch), expected)
