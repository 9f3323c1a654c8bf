import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.interpolation.apfl import apfl
from pfljax.algorithms.interpolation.superfed import superfed
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.algorithms.multi_task.pfedme import pfedme
from pfljax.conformance import toy
from pfljax.core.types import Turn


@pytest.mark.parametrize(
    ("factory", "options"),
    [
        (apfl, {"adaptive": False}),
        (ditto, {}),
        (pfedme, {}),
        (superfed, {"start": 0.0}),
    ],
)
def test_a_client_is_judged_by_the_server_until_it_took_part(factory, options):
    task, local = toy.quadratic(), toy.full_batch()
    method = factory(task, local, **options)
    w, key = toy.unflat(np.arange(3.0)), jax.random.key(0)
    data = toy.one(toy.quadratic_clients(), 2)
    client = method.init_client(toy.unflat(np.full(3, 9.0)), jnp.int32(0), key)
    turn = Turn(key, jnp.int32(1), jnp.int32(3))
    toy.assert_same(method.personal(turn, w, client, data), w)
    client, _, _ = method.train(turn, method.message(w, client), client, data)
    judged = toy.flat(method.personal(turn, w, client, data))
    assert np.abs(judged - toy.flat(w)).max() > 1e-3


@pytest.mark.parametrize(
    ("factory", "options", "share"),
    [(ditto, {}, 1), (apfl, {"adaptive": False, "alpha": 0.25}, 0.25)],
)
def test_ditto_and_apfl_judge_a_model_that_was_never_trained(factory, options, share):
    task, local = toy.quadratic(), toy.full_batch()
    method = factory(task, local, judge_untrained=True, **options)
    w, own = np.arange(3.0), np.full(3, 9.0)
    client = method.init_client(toy.unflat(own), jnp.int32(0), jax.random.key(0))
    turn = Turn(jax.random.key(0), jnp.int32(1), jnp.int32(3))
    judged = method.personal(turn, toy.unflat(w), client, None)
    np.testing.assert_allclose(toy.flat(judged), (1 - share) * w + share * own)


def test_superfeds_code_judges_a_model_that_was_never_trained():
    task, local = toy.quadratic(), toy.full_batch()
    method = superfed(task, local, start=0.5, rounds=4, judge_untrained=True)
    w, key = toy.unflat(np.arange(3.0)), jax.random.key(0)
    client = method.init_client(w, jnp.int32(0), key)
    own = toy.flat(task.init(key))
    assert np.abs(own - toy.flat(w)).max() > 1e-3
    np.testing.assert_allclose(toy.flat(method.endpoints(w, client)[1]), own)
    late = Turn(key, jnp.int32(4), jnp.int32(3))
    data = toy.one(toy.quadratic_clients(), 2)
    judged = toy.flat(method.personal(late, w, client, data))
    np.testing.assert_allclose(judged, (own + toy.flat(w)) / 2, rtol=1e-6)


def test_a_model_that_rests_is_not_judged():
    """SuPerFed's v rests until mixing starts: who took part only then has none."""
    task, local = toy.quadratic(), toy.full_batch()
    method = superfed(task, local, start=0.5, rounds=4)  # mixes from round 2 on
    w, key = toy.unflat(np.arange(3.0)), jax.random.key(0)
    data = toy.one(toy.quadratic_clients(), 2)
    client = method.init_client(w, jnp.int32(0), key)
    for trained_in, mixed in ((1, False), (2, True)):
        turn = Turn(key, jnp.int32(trained_in), jnp.int32(3))
        _, client = None, method.train(turn, w, client, data)[0]
        late = turn._replace(round=jnp.int32(4))
        judged = toy.flat(method.personal(late, w, client, data))
        assert (np.abs(judged - toy.flat(w)).max() > 1e-3) == mixed
        _, end = method.endpoints(w, client)
        assert (np.abs(toy.flat(end) - toy.flat(w)).max() > 1e-3) == mixed
