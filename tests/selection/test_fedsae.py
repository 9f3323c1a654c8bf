import jax
import jax.numpy as jnp
import numpy as np
import pytest

from selecting import CLIENTS, SIZES, assert_proportional, cohort_of, draws, made, play

LOSSES = {"loss": jnp.ones(3)}


def devices():
    """(mean, std, noise by round) of what clients can afford."""
    rng = np.random.default_rng(0)
    mean = rng.uniform(5, 10, CLIENTS)
    std = rng.uniform(mean / 4, mean / 2)

    def noise(round_):
        key = jax.random.fold_in(jax.random.key(0), round_)
        return np.array(
            [jax.random.normal(jax.random.fold_in(key, k)) for k in range(CLIENTS)]
        )

    return mean, std, noise


def replayed(rounds, rule, gain=10.0):
    """Li et al. in NumPy, a client at a time: (L, H, theta, v, A) before each round."""
    mean, std, noise = devices()
    easy, hard = np.ones(CLIENTS), np.full(CLIENTS, 2.0)
    theta, value = np.zeros(CLIENTS), np.zeros(CLIENTS)
    for number, round_ in enumerate(rounds):
        could = np.maximum(mean + std * noise(number), 0)
        yield easy.copy(), hard.copy(), theta.copy(), value.copy(), could
        for k, reports, loss in zip(round_.ids, round_.mask, round_.loss, strict=True):
            a, low, high = could[k], easy[k], hard[k]
            theta[k] = 0.95 * theta[k] + 0.05 * a if theta[k] else a

            def step(work, k=k):
                fast = 3 if work < theta[k] else 1
                return gain / work if rule == "ira" else fast

            if a >= high:
                easy[k], hard[k] = low + step(low), high + step(high)
            elif a >= low:
                easy[k] = min(low + step(low), (low + high) / 2)
                hard[k] = max(low + step(low), (low + high) / 2)
            else:
                easy[k], hard[k] = low / 2, high / 2
            easy[k], hard[k] = sorted((easy[k], hard[k]))
            assert bool(reports) == (a >= low)
            if reports:
                value[k] = np.sqrt(SIZES[k]) * loss


@pytest.mark.parametrize("rule", ["ira", "fassa"])
def test_work_and_values_replayed(rule):
    select = made("fedsae", rule=rule)
    rounds = play(select, 14)
    outcomes = set()
    for round_, wanted in zip(rounds, replayed(rounds, rule), strict=True):
        state = round_.before
        easy, hard, theta, value, could = wanted
        np.testing.assert_allclose(state.easy, easy, rtol=1e-5)
        np.testing.assert_allclose(state.hard, hard, rtol=1e-5)
        np.testing.assert_allclose(state.threshold, theta, rtol=1e-5)
        np.testing.assert_allclose(state.value, value, rtol=1e-5)
        done = (could >= easy).astype(int) + (could >= hard)
        outcomes |= set(done[round_.ids])
    assert outcomes == {0, 1, 2}


def test_who_can_afford_the_easy_work_alone_does_that():
    select = made("fedsae")  # five epochs, of 20 steps
    ids = jnp.arange(CLIENTS)
    mean, std, noise = devices()
    could = np.maximum(mean + std * noise(2), 0)
    state = select.init()._replace(
        round=jnp.int32(2), easy=jnp.full(CLIENTS, 1.3), hard=jnp.full(CLIENTS, 6.5)
    )
    steps, mask = select.work(state, jax.random.key(0), ids, jnp.full(CLIENTS, 20))
    # 4 steps an epoch: 1.3 epochs are 6, and no work is more than the run's.
    wanted = np.where(could >= 6.5, 20, np.where(could >= 1.3, 6, 0))
    np.testing.assert_array_equal(steps, wanted)
    np.testing.assert_array_equal(mask, could >= 1.3)
    assert set(wanted) >= {6, 20}
    counted = made("fedsae", epochs=None)
    steps, _ = counted.work(state, jax.random.key(0), ids, jnp.full(CLIENTS, 20))
    assert set(steps.tolist()) <= {0, 2, 7}  # steps, not epochs


def test_fixed_work_of_no_value_is_a_uniform_draw_with_drop_outs():
    select = made("fedsae", rule="fixed", beta=0.0)
    found = draws(select, play(select, 3)[-1].after, 3000)
    assert_proportional(found[:, 0], np.full(CLIENTS, 1 / CLIENTS))
    mean, std, noise = devices()
    full = jnp.arange(10, 10 + CLIENTS)
    for round_ in range(3):
        state = select.init()._replace(round=jnp.int32(round_))
        key = jax.random.key(round_)
        steps, mask = select.work(state, key, jnp.arange(CLIENTS), full)
        reports = mean + std * noise(round_) >= 5
        np.testing.assert_array_equal(mask, reports)
        np.testing.assert_array_equal(steps, np.where(reports, full, 0))
    counted = made("fedsae", rule="fixed", epochs=None)
    _, mask = counted.work(state, key, jnp.arange(CLIENTS), jnp.full(CLIENTS, 7))
    np.testing.assert_array_equal(mask, mean + std * noise(2) >= 7)
    after = select.update(state, cohort_of([0, 1, 2]), LOSSES)
    np.testing.assert_array_equal(after.hard, state.hard)


def test_clients_of_large_value_are_likelier():
    select = made("fedsae", cohort=1, beta=0.5)
    value = np.array([0, 1, 2, 3, 1, 0, 2, 4.0])
    state = select.init()._replace(value=jnp.asarray(value, jnp.float32))
    share = np.exp(0.5 * value)
    assert_proportional(draws(select, state, 4000), share / share.sum())


def test_an_empty_place_teaches_nothing():
    select = made("fedsae")
    state = select.init()
    after = select.update(state, cohort_of([CLIENTS] * 3), LOSSES)
    for before, now in zip(state[1:], after[1:], strict=True):
        np.testing.assert_array_equal(before, now)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rule": "easy"}, "rule is 'easy'; expected 'ira' "),
        ({"gain": 0.0}, "gain is 0.0; expected a finite number > 0"),
        ({"beta": -0.1}, "beta is -0.1; expected a finite number >= 0"),
        ({"devices": -1}, "devices is -1; expected at least 0"),
        ({"cohort": 9}, "the cohort is 9, but 8 clients"),
    ],
)
def test_work_that_cannot_be(options, expected):
    with pytest.raises(ValueError, match=expected):
        made("fedsae", **options)
