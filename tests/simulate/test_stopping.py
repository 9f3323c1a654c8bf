"""Runs that end early, by a callback or by their patience, and what becomes of them."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import tiny
from pfljax import Experiment, run
from pfljax.core.types import RunState
from pfljax.runs.result import Evaluation
from pfljax.simulate import evaluation, stopping
from pfljax.simulate.compare import compare
from pfljax.simulate.loop import save_population

pytestmark = pytest.mark.slow

JOB = Experiment(
    "fedavg", model="logistic", clients=6, cohort=3, rounds=6, epochs=1, eval_every=1,
    validation=0.2,
)  # fmt: skip


def ran(job, folder, **given):
    return run(job.replace(out=str(folder)), quiet=True, report=False, **given)


def stops_at(last, asked):
    """A callback that ends a run after a round, and keeps what it was asked."""

    def callback(round_, metrics, state):
        asked.append(round_)
        assert isinstance(metrics, Evaluation)
        assert isinstance(state, RunState)
        assert (metrics.round, int(state.round)) == (round_, round_)
        assert 0 <= metrics.personal.test.accuracy <= 1
        return True if round_ == last else None

    return callback


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of all its rounds."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    ran(JOB, folder)
    return folder


def test_a_callback_ends_a_run_which_is_then_finished(whole, tmp_path, capsys):
    folder = tmp_path / "run"
    asked = []
    callback = stops_at(4, asked)
    result = ran(JOB, folder, callback=callback)
    assert asked == [1, 2, 3, 4]
    assert result.rounds == result.last.round == 4
    assert result.summary["stopped"] == {"round": 4, "by": "callback", "of": 6}
    # As a run of four rounds that nobody stopped, bit for bit.
    other = tmp_path / "short"
    short = ran(JOB.replace(rounds=4), other).summary
    tiny.assert_same_arrays(folder / "clients.npz", other / "clients.npz")
    for name in ("rounds", "last", "chosen_on_validation", "traffic"):
        assert result.summary[name] == short[name]
    # The same call, with the callback or without, finds it finished.
    for given in ({"callback": callback}, {}):
        assert ran(JOB, folder, **given).summary == result.summary
    assert asked == [1, 2, 3, 4]
    # More rounds go on where it stopped.
    longer = ran(JOB.replace(rounds=8), folder, callback=callback)
    assert asked == [1, 2, 3, 4, 5, 6, 7, 8]
    assert longer.rounds == 8
    assert "stopped" not in longer.summary
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert lines[:6] == (whole / "metrics.jsonl").read_text().splitlines()


def accuracies(folder):
    with np.load(folder / "clients.npz") as arrays:
        return np.nanmean(arrays["personal/validation/accuracy"], axis=1)


def losses(folder):
    with np.load(folder / "clients.npz") as arrays:
        return np.nanmean(arrays["personal/validation/loss"], axis=1)


def expected_end(accuracy, patience):
    """The round at which nothing was better for so many evaluations."""
    best = 0
    for at in range(1, len(accuracy)):
        best = at if accuracy[at] > accuracy[best] else best
        if at - best >= patience:
            return at + 1
    return len(accuracy)


class KilledError(Exception):
    """In the place of a kill."""


def killed_after(monkeypatch, round_):
    """The run dies when a checkpoint of this round is due, or before its summary."""

    def die(*_):
        raise KilledError

    def save_or_die(population, save, progress):
        if progress.done == round_:
            raise KilledError
        return save_population(population, save, progress)

    if round_ is None:
        monkeypatch.setattr(stopping.results, "write_summary", die)
    else:
        monkeypatch.setattr("pfljax.simulate.loop.save_population", save_or_die)


def test_patience_ends_a_run_at_the_same_round_after_a_kill(tmp_path, monkeypatch):
    job = JOB.replace(lr=2.0, rounds=8)  # which does not go up at every evaluation
    folder = tmp_path / "run"
    patient = job.replace(patience=2)
    result = ran(patient, folder)
    every = ran(job, tmp_path / "whole")
    assert every.rounds == 8
    end = expected_end(accuracies(tmp_path / "whole"), 2)
    assert 3 <= end < 8
    assert result.rounds == end
    assert result.summary["stopped"] == {"round": end, "by": "patience 2", "of": 8}
    assert result.best.round == end - 2
    for round_ in (end, None):
        again = tmp_path / f"killed-{round_}"
        with monkeypatch.context() as patched:
            killed_after(patched, round_)
            with pytest.raises(KilledError):
                ran(patient, again)
        ran(patient, again)
        tiny.assert_same_run(folder, again)
    # Who has more patience goes on, to the bits of who never stopped.
    assert ran(job, folder).rounds == 8
    tiny.assert_same_run(folder, tmp_path / "whole")


def test_patience_by_the_loss_ends_where_it_does_not_fall(tmp_path, monkeypatch):
    job = JOB.replace(lr=2.0, rounds=8, seed=3)
    whole = tmp_path / "whole"
    ran(job, whole)
    end = expected_end(-losses(whole), 2)
    assert 3 <= end < expected_end(accuracies(whole), 2) == 8
    patient = job.replace(patience=2, monitor="loss")
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        killed_after(patched, end)
        with pytest.raises(KilledError):
            ran(patient, folder)
    stopped = {"round": end, "by": "patience 2 by loss", "of": 8}
    assert ran(patient, folder).summary["stopped"] == stopped
    # By the accuracy it goes on, to the bits of who never stopped.
    ran(job.replace(patience=2), folder)
    tiny.assert_same_run(folder, whole)


def test_a_loss_that_is_no_number_is_the_worst():
    """Of a client that has examples; one without has no say."""
    nan = np.nan
    arrays = {
        "personal/validation/accuracy": np.array([[0.5, nan], [0.5, nan]]),
        "personal/validation/loss": np.array([[1.0, nan], [nan, nan]]),
    }
    np.testing.assert_equal(evaluation.on_validation(arrays, "loss"), [-1.0, -np.inf])
    np.testing.assert_equal(evaluation.on_validation(arrays), [0.5, 0.5])


def test_a_callback_s_end_survives_a_kill_before_the_summary(tmp_path, monkeypatch):
    asked = []
    with monkeypatch.context() as patched:
        killed_after(patched, None)
        with pytest.raises(KilledError):
            ran(JOB, tmp_path, callback=stops_at(2, asked))
    result = ran(JOB, tmp_path)
    assert (result.rounds, result.summary["stopped"]["by"]) == (2, "callback")
    assert asked == [1, 2]


def test_runs_of_a_comparison_end_each_by_itself(tmp_path):
    job = JOB.replace(lr=2.0, rounds=12, patience=2)
    compare([job], [0, 1], str(tmp_path), local=False, quiet=True)
    ends = {}
    for seed in (0, 1):
        folder = tmp_path / "fedavg" / f"s{seed}"
        ends[seed] = json.loads((folder / "summary.json").read_text())["rounds"]
        assert ends[seed] == expected_end(accuracies(folder), 2)
    assert len(set(ends.values())) == 2  # or this shows little


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda job: ran(job.replace(patience=0), job.out),
            "patience is 0; exp",
        ),
        (
            lambda job: ran(job.replace(patience=2, monitor="los"), job.out),
            "monitor is 'los'; known: auto, accuracy, top5",
        ),
        (
            lambda job: ran(job.replace(patience=2, validation=0.0), job.out),
            "patience is 2; expected None, or validation examples",
        ),
        (
            lambda job: ran(job, job.out, callback=3),
            "callback is 3, of type int; expected a function of round, metrics, state",
        ),
        (
            lambda job: ran(job, job.out, callback=lambda metrics: True),
            r"callback takes \(metrics\); expected a function of round, metrics, state",
        ),
        (lambda job: ran(job.replace(log="cvs"), job.out), "unknown log 'cvs'"),
    ],
)
def test_what_cannot_be_is_one_line(call, words, tmp_path):
    with pytest.raises(ValueError, match=words) as error:
        call(JOB.replace(out=str(tmp_path / "run")))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("said", [0.93, "yes", 1, np.array([True, False])])
def test_a_callback_says_true_or_false(said):
    with pytest.raises(ValueError, match=r"returned .*; expected True to stop"):
        stopping._answer(lambda: said, ())


@pytest.mark.parametrize("said", [True, False, None, np.bool_(1), jnp.bool_(1)])
def test_a_callback_of_any_truth(said):
    assert stopping._answer(lambda: said, ()) is bool(said)


def test_an_error_of_a_callback_leaves_the_round_undone(whole, tmp_path):
    def breaks(round_, metrics, state):
        if round_ == 3:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ran(JOB, tmp_path, callback=breaks)
    ran(JOB, tmp_path)
    tiny.assert_same_run(tmp_path, whole)
