import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import selection
from pfljax.conformance import toy
from pfljax.core.keys import derive
from pfljax.core.minibatches import take_examples
from pfljax.selection import q_network
from pfljax.selection.favor import _components
from pfljax.selection.q_network import ROOM, Transition
from selecting import CLIENTS, cohort_of, made, public

TASK = toy.classifier()
SMALL = {"components": 2, "hidden": 4}


def models_of(count, seed):
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.vmap(TASK.init)(keys)


def flat(params):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def reduced(model, mean, basis):
    return (flat(model) - mean) @ np.asarray(basis).T


def test_components_are_those_of_a_singular_value_decomposition():
    x = np.random.default_rng(0).normal(size=(5, 30)) * np.arange(1, 31)
    mask = np.array([1, 1, 0, 1, 1])
    mean, basis = _components(jnp.asarray(x, jnp.float32), jnp.asarray(mask * 1.0), 6)
    came = x[mask > 0]
    np.testing.assert_allclose(mean, came.mean(0), rtol=1e-4, atol=1e-4)
    _, length, vectors = np.linalg.svd(came - came.mean(0), full_matrices=False)
    scale = length[0] / 2  # the square root of four models
    found = np.asarray(basis) * scale
    # Four models in their mean have three components; signs are free.
    products = np.abs(found[:3] @ vectors[:3].T)
    np.testing.assert_allclose(products, np.eye(3), atol=1e-3)
    np.testing.assert_array_equal(found[3:], 0)


@pytest.mark.slow
def test_everybody_takes_part_in_turn_first():
    select = made("favor", 3, epsilon=0.5, **SMALL)
    state = select.init()
    for round_, wanted in enumerate(([0, 1, 2], [3, 4, 5], [6, 7, 0])):
        state = state._replace(round=jnp.int32(round_))
        for seed in range(4):
            ids = select.choose(state, jax.random.key(seed))
            np.testing.assert_array_equal(ids, wanted)


@pytest.mark.parametrize("round_", [9])
def test_epsilon_1_is_uniform(round_):
    select = made("favor", epsilon=1.0, **SMALL)
    state = select.init()._replace(round=jnp.int32(round_))
    plain = selection.uniform(3, CLIENTS)
    for seed in range(4):
        key = jax.random.key(seed)
        wanted = plain.choose((), derive(key, "cohort"))
        np.testing.assert_array_equal(select.choose(state, key), wanted)


def test_the_clients_of_largest_value_are_chosen():
    select = made("favor", epsilon=0.0, **SMALL)
    state = select.init()
    models = jax.random.normal(jax.random.key(2), state.models.shape)
    state = state._replace(round=jnp.int32(3), models=models)
    layers = [(np.asarray(b), np.asarray(w)) for b, w in state.agent.online]
    z = np.asarray(models).ravel()
    for bias, kernel in layers[:-1]:
        z = np.maximum(z @ kernel + bias, 0)
    value = z @ layers[-1][1] + layers[-1][0]
    found = select.choose(state, jax.random.key(1))
    np.testing.assert_array_equal(found, np.argsort(-value)[:3])


def test_bookkeeping_replayed():
    """Models, actions and rewards of seven rounds, in one of which one is silent."""
    select = made("favor", epsilon=0.0, target=0.5, **SMALL)
    choose, observe = jax.jit(select.choose), jax.jit(select.observe)
    state = select.init()
    known = np.zeros((CLIENTS + 1, 2))
    batch = take_examples(public(), jnp.arange(6), jnp.ones(6))
    mean = basis = None
    for number in range(7):
        ids = np.asarray(choose(state, jax.random.key(number)))
        mask = np.array([1, 1, number != 4])
        models = models_of(3, number)
        server = TASK.init(jax.random.key(50 + number))
        before, old = known.copy(), state
        state = observe(state, models, server, cohort_of(ids, mask, number))
        if number == 0:
            mean, basis = np.asarray(state.mean), np.asarray(state.basis)
        np.testing.assert_array_equal(state.basis, basis)
        for m, k in enumerate(ids):
            if mask[m]:
                model = jax.tree.map(lambda leaf, m=m: leaf[m], models)
                known[k] = reduced(model, mean, basis)
        known[CLIENTS] = reduced(server, mean, basis)
        np.testing.assert_allclose(state.models, known, rtol=1e-3, atol=1e-4)
        place = int(state.agent.transitions) - 1
        assert place == number - 3 or number < 3
        if number < 3:  # in turn: nothing is an action yet
            assert place == -1
            continue
        memory = jax.tree.map(lambda leaf, place=place: leaf[place], state.agent.memory)
        right = np.mean(np.argmax(TASK.predict(server, batch), 1) == batch.y)
        np.testing.assert_allclose(memory.reward, 64 ** (right - 0.5) - 1, rtol=1e-5)
        np.testing.assert_allclose(memory.before, before.ravel(), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(memory.after, known.ravel(), rtol=1e-3, atol=1e-4)
        assert int(memory.action) in ids[mask > 0]
        assert not np.allclose(state.agent.online[0].kernel, old.agent.online[0].kernel)


def test_the_error_is_of_a_double_dqn():
    online = q_network.init(jax.random.key(1), (3, 5, 4)).online
    target = q_network.init(jax.random.key(2), (3, 5, 4)).online
    rng = np.random.default_rng(0)
    batch = Transition(
        before=rng.normal(size=(6, 3)).astype(np.float32),
        action=rng.integers(0, 4, 6),
        reward=rng.normal(size=6).astype(np.float32),
        after=rng.normal(size=(6, 3)).astype(np.float32),
    )

    def q(layers, s):
        (b1, w1), (b2, w2) = [(np.asarray(b), np.asarray(w)) for b, w in layers]
        return np.maximum(s @ w1 + b1, 0) @ w2 + b2

    wanted = []
    for s, a, r, s_next in zip(*batch, strict=True):
        best = q(online, s_next).argmax()
        wanted.append(q(online, s)[a] - (r + 0.99 * q(target, s_next)[best]))
    found = q_network.error(online, target, batch)
    np.testing.assert_allclose(found, np.mean(np.square(wanted)), rtol=1e-4)
    # The aim is fixed: no gradient through the value of what comes after.
    grads = jax.grad(q_network.error)(online, target, batch)
    aim = np.array([q(online, s)[a] for s, a, *_ in zip(*batch, strict=True)]) - wanted

    def to_aim(layers):
        chosen = q_network.values_at(layers, batch.before, batch.action)
        return jnp.mean((chosen - aim) ** 2)

    for found, own in zip(
        jax.tree.leaves(grads), jax.tree.leaves(jax.grad(to_aim)(online)), strict=True
    ):
        np.testing.assert_allclose(found, own, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_an_agent_finds_the_action_that_pays():
    agent = q_network.init(jax.random.key(0), (2, 8, 3))
    learn = jax.jit(q_network.learn)
    rng = np.random.default_rng(1)
    for step in range(2 * ROOM):
        action = int(rng.integers(3))
        transition = Transition(
            before=jnp.ones(2),
            action=jnp.int32(action),
            reward=jnp.float32(action == 1) - 1,
            after=jnp.ones(2),
        )
        agent = learn(agent, jax.random.key(step), transition, True)
    assert int(agent.transitions) == 2 * ROOM
    assert q_network.values(agent.online, jnp.ones(2)).argmax() == 1
    same = learn(agent, jax.random.key(0), transition, False)
    toy.assert_same(same, agent)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_public": 0}, "favor needs examples at the server, and there"),
        ({"target": 1.2}, "target is 1.2; expected a number from 0 to 1"),
        ({"epsilon": -0.2}, "epsilon is -0.2; expected a number from 0 to 1"),
        ({"components": 0}, "components is 0; expected at least 1"),
        ({"hidden": 0}, "hidden is 0; expected at least 1"),
        ({"cohort": 9}, "the cohort is 9, but 8 clients"),
    ],
)
def test_agents_that_cannot_be(options, expected):
    with pytest.raises(ValueError, match=expected):
        made("favor", **options)
