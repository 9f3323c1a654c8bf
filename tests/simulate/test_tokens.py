"""What a model takes decides whether its input is scaled; tokens never are."""

import jax
import numpy as np
import pytest
from flax import linen, nnx

import tiny
from pfljax import data, models
from pfljax.core.types import Batch
from pfljax.simulate import begin, components, simulation
from pfljax.simulate.federation import describe_scaling
from pfljax.simulate.shape import make_shape

TOKENS = np.random.default_rng(0).integers(0, 50, (12, 3))
LSTM = "char_lstm:vocab=50,hidden=4,layers=1"
JOB = tiny.TINY.replace(
    algorithm="fedavg", model=LSTM, clients=None, cohort=2, dataset="mine"
)


def clients(x=TOKENS, **options):
    """Two clients of six examples."""
    arrays = data.from_arrays(x, np.arange(12) % 2, name="mine", **options)
    return data.federate(arrays, "iid", num_clients=2, seed=0)


class Lookup(linen.Module):
    """Looks up the first token of an example."""

    @linen.compact
    def __call__(self, x):
        return linen.Embed(50, 4)(x[:, 0].astype(int))


class LookupNnx(nnx.Module):
    """As `Lookup`."""

    def __init__(self, rngs):
        self.table = nnx.Embed(50, 4, rngs=rngs)

    def __call__(self, x):
        return self.table(x[:, 0].astype(int))


class NetworkNnx(nnx.Module):
    """A network of tokens."""

    def __init__(self, rngs):
        self.body = LookupNnx(rngs)
        self.head = nnx.Linear(4, 2, rngs=rngs)
        self.vocab = 50


OWN = {
    "linen": lambda **scaling: models.task(
        models.Network(Lookup(), linen.Dense(2), vocab=50), (3,), **scaling
    ),
    "nnx": lambda **scaling: models.task_from_nnx(NetworkNnx, (3,), **scaling),
}


@pytest.mark.slow
def test_a_model_sees_the_same_tokens_whatever_their_type():
    bytes_ = TOKENS.astype(np.uint8)
    features = jax.jit(simulation.simulation(JOB, clients(bytes_)).task.features)
    params = models.model("char_lstm", 2, vocab=50, hidden=4, layers=1).init(
        jax.random.key(0), TOKENS
    )["params"]
    seen = [features(params, Batch.full(x), None) for x in (bytes_, TOKENS)]
    np.testing.assert_array_equal(*seen)
    assert len(np.unique(seen[0], axis=0)) > 1


@pytest.mark.parametrize(
    ("model", "sees"), [("logistic", "x / 255"), (LSTM, "x as tokens from 0 to 49")]
)
def test_a_run_says_what_its_model_sees(model, sees):
    bytes_ = clients(TOKENS.astype(np.uint8))
    job = JOB.replace(model=model)
    tasks = components.make_tasks(job, make_shape(job, bytes_))
    assert describe_scaling(bytes_, tasks).startswith(sees)


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_tokens_of_a_model_of_ones_own_are_not_scaled(make):
    task = make(scale=255.0)
    params = task.init(jax.random.key(0))
    batch = Batch.full(TOKENS.astype(np.uint8))
    expected = make(scale=1.0).predict(params, batch)
    np.testing.assert_array_equal(task.predict(params, batch), expected)
    assert len(np.unique(expected, axis=0)) > 1


WRONG = {
    "large": (
        TOKENS + 60,
        {},
        "largest token is 1.*from 0 to 49: .* vocab of at least",
    ),
    "uint8": (np.full((12, 3), 255, np.uint8), {}, "is 255; .* vocab of at least 256"),
    "negative": (TOKENS - 9, {}, "smallest token is -.*; .* 0 to 49: renumber"),
    "shifted": (TOKENS, {"shift": 7}, "smallest token is -7"),
    "real": (TOKENS + 0.5, {}, r"x holds \d+.5; .* 0 to 49, whole numbers: give it"),
}


@pytest.mark.parametrize(("x", "options", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_token_is_refused_before_a_run(x, options, message):
    with pytest.raises(ValueError, match=message):
        begin.check_method(JOB, clients(x, **options), None)


def test_the_tokens_of_the_server_are_checked():
    arrays = data.from_arrays(np.r_[TOKENS, TOKENS], np.arange(24) % 2, name="mine")
    federation = data.federate(arrays, "iid", num_clients=2, seed=0, public=0.1)
    federation.public.examples.x[:] = 99
    with pytest.raises(ValueError, match="the largest token is 99"):
        begin.check_method(JOB, federation, None)
