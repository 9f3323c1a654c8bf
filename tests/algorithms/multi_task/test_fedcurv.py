import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.algorithms.multi_task.fedcurv import Client, Curvature, Server, fedcurv
from pfljax.conformance import Case, toy

# A model, two sums of its shape and their round down; a model and two of its shape up.
# Curvature is no change of a message: law "2 origin" is tested below.
SENT = (3 * toy.WHOLE + 4, 3 * toy.WHOLE)
CONFORMANCE = [
    Case("fedcurv", bytes=SENT, sends_statistics=True),
    Case("fedcurv", {"diagonal": "batches"}, bytes=SENT, sends_statistics=True),
]

LAM = 0.3
TASK = toy.quadratic()
KEY = jax.random.key(0)


def test_fedcurv_against_numpy():
    """The penalty as the paper has it, a sum over the others of the last round."""
    states, drawn = toy.run_quadratic(fedcurv, rounds=4, lam=LAM)
    w = toy.flat(states[0].server.w)
    last = {}  # what those of the last round sent: (w_j, I_j)
    for ids, state in zip(drawn, states[1:], strict=True):
        sent = {}
        for k in ids:

            def slope(v, k=k, last=last):
                pulls = (
                    fisher * (v - w_j) for j, (w_j, fisher) in last.items() if j != k
                )
                return toy.gradient(k, v) + 2 * LAM * sum(pulls)

            w_k = toy.descend(w, slope)
            sent[k] = w_k, toy.gradient(k, w_k) ** 2
        last = sent
        w = np.average([sent[k][0] for k in ids], axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server.w), w, rtol=1e-4, atol=1e-5)
        total = sum(fisher for _, fisher in sent.values())
        found = toy.flat(state.server.sums.diagonal)
        np.testing.assert_allclose(found, total, rtol=1e-4, atol=1e-5)
    # Some client sat out a round, so that what it sent before was not in the sums.
    assert len({tuple(sorted(ids)) for ids in drawn}) > 1


def of_all(value):
    return toy.unflat(np.full(3, value))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "took_part"),
    [(3, True), (3, False)],
    ids=["one of four", "not one of three"],
)
def test_equal_curvature_at_equal_models_is_fedprox(others, took_part):
    """I = c and w_j = w: mu = 2 lam c (M - 1) for who was one of M, else 2 lam c M.

    The sums may be some rounds old, where nobody reported since.
    """
    c = 0.4
    w = toy.unflat([1.0, -2, 3])
    own = Curvature(of_all(c), jax.tree.map(lambda leaf: c * leaf, w))
    count = others + took_part
    sums = jax.tree.map(lambda leaf: count * leaf, own)
    message = Server(w, sums, jnp.int32(6))
    client = Client(own, jnp.int32(6 if took_part else 5))
    turn, data = toy.turn(KEY, 8, 4), toy.one(toy.quadratic_clients(), 1)
    local = toy.full_batch()
    _, upload, _ = fedcurv(TASK, local, lam=LAM).train(turn, message, client, data)
    prox = fedprox(TASK, local, mu=2 * LAM * c * others)
    _, wanted, _ = prox.train(turn, w, (), data)
    toy.assert_close(upload.w, wanted, 1e-6)


def test_rounding_never_pushes_away():
    """Sums that lost the own part to rounding: no curvature is left, and not less."""
    own = Curvature(of_all(1.0), of_all(1.0))
    message = Server(
        of_all(0.0), Curvature(of_all(1 - 1e-6), of_all(1.0)), jnp.int32(0)
    )
    client = Client(own, jnp.int32(0))
    local = toy.full_batch()
    turn, data = toy.turn(KEY, 1, 300), toy.one(toy.quadratic_clients(), 1)
    method = fedcurv(TASK, local, lam=1e7)
    _, upload, _ = method.train(turn, message, client, data)
    np.testing.assert_allclose(toy.flat(upload.w), toy.B[1], rtol=1e-4)


def test_who_takes_no_step_uploads_the_message_and_its_curvature():
    w = toy.unflat([1.0, -2, 3])
    method = fedcurv(TASK, toy.full_batch())
    server, client = method.init(w, 4, KEY), method.init_client(w, 1, KEY)
    turn, data = toy.turn(KEY, 0, 0), toy.one(toy.quadratic_clients(), 1)
    _, upload, _ = method.train(turn, server, client, data)
    origin = method.origin(server, client, upload)
    toy.assert_same(upload.w, origin.w)
    assert not any(leaf.any() for leaf in jax.tree.leaves(origin.curvature))
    wanted = toy.gradient(1, toy.flat(w)) ** 2
    np.testing.assert_allclose(toy.flat(upload.curvature.diagonal), wanted, rtol=1e-5)


def test_a_negative_pull_is_refused():
    with pytest.raises(ValueError, match=r"^fedcurv: lam is -1\.0; expected a finite"):
        fedcurv(TASK, toy.full_batch(), lam=-1.0)
