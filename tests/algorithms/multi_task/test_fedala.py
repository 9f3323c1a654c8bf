import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.multi_task.fedala import Client, fedala
from pfljax.conformance import Case, toy
from pfljax.core.types import Local

SENT = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [
    Case("fedala", bytes=SENT),
    Case("fedala", {"layers": 2, "share": 0.3}, bytes=SENT),
]

TASK = toy.quadratic()  # of two modules: two params in the body, one in the head
KEY = jax.random.key(0)
TOP = {1: slice(2, 3), 2: slice(0, 3)}  # the params of so many top modules
RATE = 0.3


def loss(k, w):
    return toy.A[k] / 2 * ((w - toy.B[k]) ** 2).sum()


def begun(k, w, client, layers, threshold):
    """(v, W, passes) of quadratic client k, whose pass is one full batch."""
    own, weights, stage = client
    top, weights = TOP[layers], weights.copy()

    def mixture():
        v = w.copy()
        v[top] = own[top] + weights * (w - own)[top]
        return v

    losses = []
    while len(losses) < (0, 50, 1)[stage]:
        v = mixture()
        losses.append(loss(k, v))
        slope = toy.gradient(k, v) * (w - own)
        weights = np.clip(weights - RATE * slope[top], 0, 1)
        if len(losses) > 10 and np.std(losses[-10:]) < threshold:
            break
    return mixture(), weights, len(losses)


@pytest.mark.parametrize(
    ("layers", "threshold"), [(1, 1e-3), pytest.param(2, 0.02, marks=pytest.mark.slow)]
)
def test_fedala_against_numpy(layers, threshold):
    options = {"layers": layers, "threshold": threshold, "most_passes": 50}
    options["weight_lr"] = RATE
    states, drawn = toy.run_quadratic(fedala, rounds=5, **options)
    method = fedala(TASK, toy.full_batch(), **options)
    w = toy.flat(states[0].server)
    size = TOP[layers].stop - TOP[layers].start
    clients = [(w, np.ones(size), 0)] * 4
    counted = set()
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            v, weights, passes = begun(k, w, clients[k], layers, threshold)
            counted.add(passes)
            own = toy.descend(v, lambda x, k=k: toy.gradient(k, x))
            clients[k] = own, weights, min(clients[k][2] + 1, 2)
            uploads.append(own)
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        found = state.clients
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found.stage, [stage for *_, stage in clients])
        for k, (own, weights, _) in enumerate(clients):
            of_k = jax.tree.map(lambda leaf, k=k: leaf[k], found)
            np.testing.assert_allclose(toy.flat(of_k.w), own, rtol=1e-4, atol=1e-5)
            leaves = np.concatenate(jax.tree.leaves(of_k.weights))
            np.testing.assert_allclose(leaves, weights, rtol=1e-4, atol=1e-5)
    # No pass, one, and until the losses settle, which some do before the cap.
    assert {0, 1} < counted
    assert any(10 < passes < 50 for passes in counted)
    # Every client is evaluated with the model at which it would start now.
    personal = jax.jit(method.personal)
    for k in range(4):
        of_k = jax.tree.map(lambda leaf, k=k: leaf[k], states[-1].clients)
        data, turn = toy.one(toy.quadratic_clients(), k), toy.turn(KEY)
        evaluated = personal(turn, states[-1].server, of_k, data)
        v, *_ = begun(k, w, clients[k], layers, threshold)
        np.testing.assert_allclose(toy.flat(evaluated), v, rtol=1e-4, atol=1e-5)


def client_of(own, stage):
    own = toy.unflat(own)
    return Client(own, jax.tree.map(jnp.ones_like, own), jnp.int32(stage))


def test_one_batch_is_a_step_that_distance_scales_and_only_falls():
    """v = w - weight_lr D D grad F(w), D = w - w_k, where that is between them."""
    k, w = 1, np.array([1.0, -2, 3])
    gap = np.array([0.4, 0.3, -0.2])
    method = fedala(TASK, toy.full_batch(), layers=2, weight_lr=RATE)
    data = toy.one(toy.quadratic_clients(), k)
    turn, client = toy.turn(KEY), client_of(w - gap, 2)
    v = toy.flat(method.personal(turn, toy.unflat(w), client, data))
    falls = toy.gradient(k, w) * gap > 0
    assert falls.any()
    assert not falls.all()
    moved = w - RATE * gap**2 * toy.gradient(k, w)
    np.testing.assert_allclose(v, np.where(falls, moved, w), rtol=1e-5)
    np.testing.assert_array_equal(v[~falls], np.float32(w)[~falls])


def test_equal_models_move_no_weight():
    w = np.array([1.0, -2, 3])
    method = fedala(TASK, toy.full_batch(), layers=2, weight_lr=9.0)
    data = toy.one(toy.quadratic_clients(), 1)
    after, *_ = method.train(toy.turn(KEY), toy.unflat(w), client_of(w, 2), data)
    assert all((leaf == 1).all() for leaf in jax.tree.leaves(after.weights))


@pytest.mark.parametrize(
    ("threshold", "stage", "passes"),
    [(0.0, 1, 23), (1e9, 1, 11), (0.0, 2, 1), (0.0, 0, 0)],
    ids=["never settles", "settles at once", "later", "first round"],
)
def test_how_many_passes_there_are(threshold, stage, passes):
    method = fedala(TASK, toy.full_batch(), threshold=threshold, most_passes=23)
    data = toy.one(toy.quadratic_clients(), 1)
    client = client_of(np.zeros(3), stage)
    client = client._replace(weights={"body": None, "head": jnp.ones(1)})
    *_, metrics = method.train(toy.turn(KEY), toy.unflat(np.ones(3)), client, data)
    assert metrics["passes"] == passes


def test_a_pass_is_over_a_random_share_of_the_examples_in_whole_batches():
    """0.4 of 12 examples are one batch of 5, and 0.5 of them are two."""
    train = toy.noisy_clients()
    data = toy.one(train, 3)
    w, own = np.array([1.0, -2, 3]), np.array([-3.0, 3, -4])
    client = client_of(own, 2)._replace(weights=toy.unflat(np.full(3, 0.5)))

    @jax.jit
    def begun(share, key):
        method = fedala(TASK, Local(0.1, 5), layers=2, weight_lr=0.1, share=share)
        return method.personal(toy.turn(key), toy.unflat(w), client, data)

    of_shares = [toy.flat(begun(share, KEY)) for share in (0.0, 0.4, 0.5, 0.8)]
    np.testing.assert_array_equal(of_shares[0], of_shares[1])
    np.testing.assert_array_equal(of_shares[2], of_shares[3])
    x = np.asarray(train.examples.x)[int(data.offset) :][:12, 1:]
    subsets = list(itertools.combinations(range(12), 5))
    means = np.array([x[list(subset)].mean(0) for subset in subsets])
    gap = w - own
    v = own + gap / 2
    weights = np.clip(0.5 - 0.1 * (v - means) * gap, 0, 1)
    seen = set()
    for seed in range(3):
        found = toy.flat(begun(0.4, jax.random.key(seed)))
        fits = np.isclose(own + weights * gap, found, atol=1e-5).all(1)
        assert fits.sum() == 1
        seen.add(int(fits.argmax()))
    assert len(seen) == 3
    assert not np.allclose(of_shares[1], of_shares[2], atol=1e-3)


def test_more_layers_than_modules_are_refused():
    with pytest.raises(
        ValueError, match="fedala: layers is 3; expected at most 2, the"
    ):
        fedala(TASK, toy.full_batch(), layers=3)
