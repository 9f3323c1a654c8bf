"""A loop of one's own over `init`, `round` and `evaluate`."""

import json

import chex
import jax
import pytest

import tiny
from pfljax import Experiment, build, run

JOB = Experiment(
    "ditto:lam=1.0",
    model="logistic",
    clients=5,
    cohort=2,
    rounds=3,
    epochs=1,
    batch_size=20,
    eval_every=3,
    seed=4,
    devices=1,
)


def test_an_own_loop_has_the_bits_of_a_run(tmp_path):
    result = run(JOB.replace(out=str(tmp_path)), quiet=True, report=False)
    sim, data = build(JOB)
    state = sim.init(jax.random.key(JOB.seed))
    losses = []
    for _ in range(JOB.rounds):
        state, metrics = sim.round(state, data)
        losses.append(float(metrics["loss"]))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert losses == [json.loads(line)["train_loss"] for line in lines]
    saved = tiny.last_state(tmp_path)
    for ours, theirs in ((state.server, saved.server), (state.clients, saved.clients)):
        chex.assert_trees_all_equal(ours, theirs)
    assert sim.evaluate(state, data).records == result.last.records


def test_a_store_is_refused():
    with pytest.raises(
        ValueError, match="state_storage is 'disk'; expected 'device' in your"
    ):
        build(JOB.replace(state_storage="disk"))


def test_a_state_that_round_has_used_up_is_refused():
    sim, data = build(JOB)
    first = sim.init(jax.random.key(0))
    state, _ = sim.round(first, data)
    for call in (sim.round, sim.evaluate):
        with pytest.raises(ValueError, match="state was given to round before"):
            call(first, data)
        with pytest.raises(ValueError, match="data is 3, of type int; expected the"):
            call(state, 3)
        with pytest.raises(ValueError, match="expected the state that init or round"):
            call({}, data)
