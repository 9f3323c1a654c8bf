import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.interpolation.mapper import Mixture, Private, mapper
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch
from softmax_clients import TRAIN, gradient, linear, losses

BOTH = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [
    Case("mapper", bytes=BOTH),
    Case("mapper", {"shares": 2, "global_steps": None, "finetune": 2}, bytes=BOTH),
]
RATE = 10  # it overshoots, so that the largest share is not the best for all


def fitted(k, h, h_g, grid, steps):
    """(h_k, lambda_k) of least loss over the grid."""
    fits = []
    for share in grid:

        def slope(h, share=share):
            return share * gradient(k, share * h + (1 - share) * h_g)

        trained = toy.descend(h, slope, steps, RATE)
        fits.append(
            (losses(k, share * trained + (1 - share) * h_g).mean(), trained, share)
        )
    return min(fits, key=lambda fit: fit[0])[1:]


def test_mapper_against_numpy():
    task, local = linear(), toy.full_batch(epochs=3, rate=RATE)
    method = mapper(task, local, global_steps=2)
    states, _ = toy.run_rounds(method, task, local, TRAIN, rounds=2, cohort=5)
    h_g = np.asarray(states[0].server["head"], np.float64)
    h, share = np.tile(h_g, (8, 1, 1)), np.zeros(8)
    for state in states[1:]:
        uploads = []
        for k in np.asarray(state.cohort):
            h[k], share[k] = fitted(k, h[k], h_g, (0.25, 0.5, 0.75), 3)

            def slope(w, k=k):
                return (1 - share[k]) * gradient(
                    k, share[k] * h[k] + (1 - share[k]) * w
                )

            uploads.append(toy.descend(h_g, slope, 2, RATE))
        h_g = np.mean(uploads, axis=0)
        np.testing.assert_allclose(state.server["head"], h_g, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.clients.h["head"], h, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.clients.share, share)
    assert set(share) >= {0.5, 0.75}


def test_a_client_is_evaluated_with_the_mixture_of_logits():
    task = toy.classifier()
    method = mapper(task, toy.full_batch())
    h, h_g = (task.init(jax.random.key(seed)) for seed in (1, 2))
    data = toy.one(TRAIN, 1)
    batch = Batch.full(data.examples.x)
    private = Private(h, jnp.float32(0.3))
    evaluated = method.predict(method.personal(toy.turn(), h_g, private, data), batch)
    z, z_g = (task.predict(w, batch) for w in (h, h_g))
    np.testing.assert_allclose(evaluated, 0.3 * z + 0.7 * z_g, rtol=1e-5, atol=1e-6)
    new = method.newcomer(toy.turn(), h_g, data)
    np.testing.assert_array_equal(method.predict(new, batch), z_g)
    np.testing.assert_array_equal(method.predict(h_g, batch), z_g)


def test_who_never_took_part_fits_its_own_model_and_share():
    """Its own model begins at h_g."""
    task, local = linear(), toy.full_batch(rate=RATE)
    method = mapper(task, local, finetune=4, lowest=0.1, highest=0.9, shares=2)
    h_g, k = task.init(jax.random.key(0)), 1
    mixture = method.newcomer(toy.turn(), h_g, toy.one(TRAIN, k))
    assert isinstance(mixture, Mixture)
    w = np.asarray(h_g["head"], np.float64)
    h, share = fitted(k, w, w, (0.1, 0.9), 4)
    np.testing.assert_allclose(mixture.private.h["head"], h, rtol=1e-4, atol=1e-5)
    assert float(mixture.private.share) == pytest.approx(share)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lowest": 0.9}, r"lowest is 0\.9; expected at most highest, 0\.75"),
        ({"highest": 1.5}, r"highest is 1\.5; expected a number from 0 to 1"),
        ({"shares": 0}, "shares is 0; expected at least 1"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mapper(toy.quadratic(), toy.full_batch(), **options)
