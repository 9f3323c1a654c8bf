"""The order in which a run writes its results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny
from pfljax import Experiment, run
from pfljax.engine.population import DevicePopulation
from pfljax.runs import checkpoint, folder, log
from pfljax.simulate import loop
from pfljax.simulate.loop import save_population

JOB = Experiment(
    model="logistic",
    clients=5,
    cohort=2,
    rounds=3,
    epochs=1,
    batch_size=20,
    eval_every=1,
)
LATER = ["rounds", "clients", "rounds", "save 1", "rounds", "save 2", "save 3"]
AT_ONCE = ["clients", "rounds", "save 1", "rounds", "save 2", "rounds", "save 3"]
train = DevicePopulation.rounds


def ran(job, out):
    run(job.replace(out=str(out)), quiet=True, report=False)
    return out


@pytest.fixture
def steps(monkeypatch):
    """The steps of a run in order: clients described, rounds called, state saved."""
    done = []
    describe = folder.write_partition

    def clients(*args):
        done.append("clients")
        describe(*args)

    def rounds(*args):
        done.append("rounds")
        return train(*args)

    def write(population, save, progress):
        done.append(f"save {progress.done}")
        return save_population(population, save, progress)

    monkeypatch.setattr(DevicePopulation, "rounds", rounds)
    monkeypatch.setattr(folder, "write_partition", clients)
    monkeypatch.setattr(loop, "save_population", write)
    return done


@pytest.mark.slow
def test_small_states_are_saved_while_the_next_rounds_train(
    steps, tmp_path, monkeypatch
):
    later = ran(JOB, tmp_path / "later")
    assert steps == LATER
    steps.clear()
    monkeypatch.setattr(loop, "COPIED_BYTES", 0)
    at_once = ran(JOB, tmp_path / "at_once")
    assert steps == AT_ONCE
    tiny.assert_same_run(later, at_once)


def test_a_copy_stays_what_it_was_when_the_state_is_given_away():
    state = {"key": jax.random.key(3), "w": jnp.arange(3.0)}
    copy = jax.tree.map(loop.copy, state)
    jax.tree.map(lambda leaf: leaf.delete(), state)
    np.testing.assert_array_equal(copy["w"], [0, 1, 2])
    np.testing.assert_array_equal(
        jax.random.key_data(copy["key"]), jax.random.key_data(jax.random.key(3))
    )


def test_what_was_trained_is_kept_when_the_next_rounds_fail(tmp_path, monkeypatch):
    calls = []

    def rounds(*args):
        calls.append(args)
        if len(calls) == 3:
            raise MemoryError
        return train(*args)

    with monkeypatch.context() as patched:
        patched.setattr(DevicePopulation, "rounds", rounds)
        with pytest.raises(MemoryError):
            ran(JOB, tmp_path / "failed")
    failed = tmp_path / "failed"
    assert checkpoint.saved_rounds(failed / "checkpoints") == [1, 2]
    assert len(log.read(failed / "metrics.jsonl", 3)) == 2
    tiny.assert_same_run(ran(JOB, failed), ran(JOB, tmp_path / "whole"))
