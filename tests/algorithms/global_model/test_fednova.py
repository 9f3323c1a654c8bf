import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.global_model.fednova import fednova, length
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import sgd
from pfljax.core.types import Local

CONFORMANCE = [
    Case("fednova", bytes=(toy.WHOLE, toy.WHOLE + 4)),
    Case("fednova", {"mu": 0.1, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE + 4)),
]


def test_fednova_against_numpy():
    """Batches of one example: client k takes as many steps as it has examples."""
    states, drawn = toy.run_quadratic(fednova, epochs=1, batch_size=1)
    w = toy.flat(states[0].server)
    for ids, state in zip(drawn, states[1:], strict=True):
        p = toy.COUNTS[ids] / toy.COUNTS[ids].sum()
        tau = toy.COUNTS[ids]
        d = []
        for k in ids:
            w_k = toy.descend(w, lambda x, k=k: toy.gradient(k, x), toy.COUNTS[k])
            d.append((w - w_k) / (toy.RATE * toy.COUNTS[k]))
        w = w - (p @ tau) * toy.RATE * (p @ np.array(d))
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)


def weights(steps, momentum, mu):
    """a_k by section 3 of the paper: of each gradient, in the order of the steps."""
    if momentum:
        return (1 - momentum ** np.arange(steps, 0, -1)) / (1 - momentum)
    return (1 - toy.RATE * mu) ** np.arange(steps - 1, -1, -1)


@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize(("momentum", "mu"), [(0, 0), (0.9, 0), (0, 0.5)])
def test_the_length_is_the_norm_of_the_weights(steps, momentum, mu):
    local = Local(toy.RATE, batch_size=1, optimizer=sgd(momentum or None))
    found = length(local, toy.turn(jax.random.key(0), 0, steps), mu)
    expected = toy.RATE * weights(steps, momentum, mu).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_length_goes_by_the_rate_of_the_round():
    local = Local(lambda round_: 0.1 * 0.5**round_, batch_size=1)
    lengths = [length(local, toy.turn(round_=r, steps=3), 0.0) for r in (0, 1)]
    np.testing.assert_allclose(lengths, [0.3, 0.15], rtol=1e-6)


def test_a_client_without_steps_moves_nothing():
    method = fednova(toy.quadratic(), toy.full_batch())
    data = toy.one(toy.quadratic_clients(), 1)
    w = toy.unflat([1.0, 2, 3])
    _, upload, _ = method.train(toy.turn(steps=0), w, (), data)
    assert not np.any(toy.flat(upload.d))
    assert upload.s == 0
    # And beside others it keeps its weight: the server goes less far.
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), upload, moved(method, w, data))
    after = method.aggregate(w, both, toy.cohort([1, 1]))
    alone = toy.flat(both.d)[1] * both.s[1]
    np.testing.assert_allclose(toy.flat(after), toy.flat(w) + alone / 4, rtol=1e-5)


def moved(method, w, data):
    """The upload of a client that took two steps."""
    return method.train(toy.turn(steps=2), w, (), data)[1]
