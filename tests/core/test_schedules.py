"""Schedules of the learning rate: by round and by step, beside their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pfljax import Experiment
from pfljax.core import schedules
from pfljax.core.components import parse
from pfljax.core.optimizers import learning_rate
from pfljax.core.training import fit
from pfljax.core.types import ClientData, Examples, Turn
from pfljax.simulate import training

R = np.arange(8)
COSINE = (1 + np.cos(np.pi * np.minimum(R, 4) / 4)) / 2
FACTORS = {
    "cosine:decay_steps=4": COSINE,
    "cosine_decay_schedule:decay_steps=4,alpha=0.5": 0.5 + 0.5 * COSINE,
    "exponential:transition_steps=2,decay_rate=0.5": 0.5 ** (R / 2),
    "linear:end_value=0.1,transition_steps=3": np.maximum(1 - 0.3 * R, 0.1),
    "piecewise_constant:boundaries=(2,5),scales=(0.1,0.5)": (
        np.where(R > 1, 0.1, 1) * np.where(R > 4, 0.5, 1)
    ),
    "piecewise_constant:boundaries=3,scales=0.1": np.where(R > 2, 0.1, 1),
    "warmup_constant:warmup_steps=4": np.minimum(R / 4, 1),
    "warmup_cosine:warmup_steps=2,decay_steps=6": np.where(
        R < 2, R / 2, (1 + np.cos(np.pi * np.clip(R - 2, 0, 4) / 4)) / 2
    ),
}
WRONG = {
    "cosin": "unknown schedule 'cosin'; .*did you mean 'cosine'",
    "adam": "unknown schedule 'adam'; known: constant, cosine,",
    "cosine": "schedule 'cosine' needs the parameter 'decay_steps'",
    "cosine:decay_steps=0": "decay_steps is 0; expected at least 1",
    "cosine:decay_steps=1.5": r"decay_steps is 1\.5; expected a whole number",
    "cosine:steps=3": "schedule 'cosine': unknown parameter 'steps'; known: alpha",
    "warmup_cosine:warmup_steps=20,decay_steps=10": (
        "decay_steps is 10 and warmup_steps 20; decay_steps includes the warm-up"
    ),
    "warmup_cosine:warmup_steps=9,decay_steps=9": "so expected more than 9",
    "cosine:decay_steps=3,by=epoch": "by is 'epoch'; known: round, step",
    "cosine:decay_steps=3,alpha=-1": "alpha is -1; expected a finite number >= 0",
    "cosine:decay_steps=3,alpha=x": "alpha is 'x'; expected a number",
    "piecewise_constant:boundaries=(1,2),scales=0.1": "expected equal numbers of both",
}


@pytest.mark.parametrize("text", FACTORS)
def test_factors_are_those_of_the_formula(text):
    made = training.make_local(Experiment(lr=0.5, lr_decay=0.9, schedule=text))
    by_round = jax.jit(lambda r: learning_rate(made, r))
    rates = [float(by_round(jnp.int32(r))) for r in R]
    expected = 0.5 * 0.9 ** (R + 1) * FACTORS[text]
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_refused(text):
    with pytest.raises(ValueError, match=WRONG[text]):
        schedules.check(parse(text))


def test_every_known_schedule_is_of_optax_and_constant_is_none():
    for function in schedules.list_schedules().values():
        assert getattr(optax.schedules, function.__name__) is function
    made = training.make_local(Experiment(lr=0.5, schedule="constant"))
    assert (made.learning_rate, made.by_step) == (0.5, None)


def test_by_step_counts_from_the_first_step_of_a_round():
    """On F(w) = w^2 / 2 each step multiplies w by 1 - its rate."""
    text = "linear:end_value=0.2,transition_steps=4,by=step"
    made = training.make_local(
        Experiment(lr=0.5, lr_decay=0.9, epochs=None, steps=3, schedule=text)
    )
    pool = Examples(jnp.zeros((4, 1)), jnp.zeros(4, jnp.int32))
    data = ClientData(pool, jnp.int32(0), jnp.int32(4))

    def after(round_):
        turn = Turn(
            key=jax.random.key(0),
            round=jnp.int32(round_),
            steps=jnp.int32(3),
            id=jnp.int32(0),
            num_clients=1,
            public=data,
        )
        w = {"w": jnp.float32(1)}
        return fit(lambda w, batch, key: w["w"] ** 2 / 2, w, data, turn, made)[0]["w"]

    for round_ in (0, 2):
        rates = 0.5 * 0.9 ** (round_ + 1) * (1 - 0.2 * np.arange(3))
        np.testing.assert_allclose(after(round_), np.prod(1 - rates), rtol=1e-6)


def test_a_method_with_one_rate_a_round_refuses_steps():
    made = training.make_local(
        Experiment(schedule="cosine:decay_steps=4,by=step"),
    )
    with pytest.raises(ValueError, match=r"computes with one learning rate.*by=round"):
        learning_rate(made, jnp.int32(0))
