"""Sweeps with a clock and with attackers tell what runs tell."""

import json

import jax
import numpy as np
import pytest

from pfljax import Experiment
from pfljax.core import malicious
from pfljax.evaluation.metrics import METRICS
from pfljax.report import sweeps, write_sweep_report
from pfljax.report.curves import group_curves, spent_table
from pfljax.report.tables import values_by_seed
from pfljax.simulate import run
from pfljax.sweep import sweep

pytestmark = pytest.mark.slow

JOB = Experiment(
    model="logistic",
    clients=6,
    cohort=3,
    rounds=5,
    epochs=1,
    batch_size=20,
    eval_every=2,
    devices=1,
    profile="speed_groups:jitter=0.3",
    deadline=1.0,
    noise="poison:attackers=0.34",
    channel=["sign_flip:attackers=0.34"],
)
OVER = {"lr": (0.05, 0.1), "seed": (0, 3)}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """(the sweep, its folder)."""
    folder = tmp_path_factory.mktemp("swept")
    return sweep(JOB, OVER, out=folder), folder


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """The evaluated lines of the log of the run that the sweep's last is."""
    folder = tmp_path_factory.mktemp("run") / "run"
    job = JOB.replace(lr=0.1, seed=3, out=str(folder))
    run.run(job, quiet=True, report=False)
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "evaluations" in line]


def test_seconds_are_those_of_the_run(swept, evaluated):
    found, folder = swept
    expected = [line["clock"] for line in evaluated]
    assert found.results[-1].clock.tolist() == expected
    assert expected == sorted(expected)
    assert expected[0] > 0
    read = sweeps.read(folder).to_dict("records")
    rows = [r for r in read if (r["lr"], r["seed"]) == ("0.1", "3")]
    clock = {row["round"]: row["clock"] for row in rows}
    assert list(clock) == [2, 4, 5]
    assert list(clock.values()) == expected


def test_figures_over_benign_clients_are_those_of_the_run(swept, evaluated):
    found, folder = swept
    bad = np.asarray(malicious.draw(jax.random.key(3), 6, 0.34))
    np.testing.assert_array_equal(found.results[-1].malicious, bad)
    expected = {}
    for line in evaluated:
        for record in line["evaluations"]:
            of = (line["round"], record["model"], record["clients"], record["split"])
            for metric, figures in record["metrics"].items():
                expected[*of, metric] = figures
    read = sweeps.read(folder).to_dict("records")
    rows = [r for r in read if (r["lr"], r["seed"]) == ("0.1", "3")]
    groups = ["all", "benign", "malicious"]
    # Personal and server, test and validation, three evaluations.
    assert len(rows) == 2 * 2 * 3 * len(groups) * len(METRICS)
    for row in rows:
        key = ("round", "evaluated", "clients", "split", "metric")
        for figure, value in expected[tuple(row[name] for name in key)].items():
            assert row[figure] == pytest.approx(value, rel=1e-5, abs=1e-6)
    again = sweep(JOB, OVER, out=folder)  # read, and not run
    assert [*again.rows()] == [*found.rows()]


def test_the_report_has_seconds_targets_and_benign_clients(swept, tmp_path):
    found, folder = swept
    text = write_sweep_report(folder, tmp_path, [0.05, 1.0], verbose=True)
    rows = list(found.rows())
    last = np.mean([result.clock[-1] for result in found.results[:2]])
    frame = sweeps.tidy(rows)
    by_seed = values_by_seed(frame)
    first = by_seed.xs(by_seed.index[0][1], level="model").iloc[:2]
    assert first.clock.mean() == pytest.approx(last)
    spent = spent_table(group_curves(frame), [0.05, 1.0]).iloc[:2]
    # The first evaluation that can reach a target is the third.
    expected = [result.clock[2] for result in found.results[:2]]
    np.testing.assert_allclose(spent["seconds_to_0.05"], expected)
    assert np.isinf(spent["seconds_to_1"]).all()
    accuracy = found.results[0].metrics["personal/test/accuracy"][-1]
    benign = accuracy[~found.results[0].malicious]
    of_benign = values_by_seed(frame, "benign").accuracy.iloc[0]
    assert of_benign == pytest.approx(benign.mean())
    assert "clients: benign" in text
    assert "Virtual seconds to 5 %" in text
    assert "Virtual seconds to 5 %" in (tmp_path / "sweep.html").read_text("utf-8")


def test_labels_and_uploads_of_other_shares_are_refused():
    with pytest.raises(ValueError, match="give one share"):
        sweep(JOB.replace(channel=["sign_flip:attackers=0.5"]), {"lr": [0.1]})


@pytest.mark.parametrize("mode", ["fedbuff:buffer=2", "fedasync"])
def test_asynchronous_runs_are_those_of_run(mode, tmp_path):
    job = JOB.replace(
        algorithm="ditto", mode=mode, deadline=None, noise="none", channel=[]
    )
    found = sweep(job, {"lam": (0.0, 0.5), "lr": (0.05,), "seed": (0, 3)})
    own = job.replace(
        algorithm="ditto:lam=0.5", lr=0.05, seed=3, out=str(tmp_path / "run")
    )
    run.run(own, quiet=True, report=False)
    text = (tmp_path / "run/metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    result = found.results[3]
    assert result.values == {"lam": 0.5, "lr": 0.05, "seed": 3}
    expected = [line["clock"] for line in lines if "evaluations" in line]
    assert result.clock.tolist() == expected
    losses = [line["train_loss"] for line in lines]
    np.testing.assert_allclose(result.train_loss, losses, rtol=1e-5)
    with np.load(tmp_path / "run/clients.npz") as arrays:
        for name, values in result.metrics.items():
            np.testing.assert_allclose(values, arrays[name], rtol=1e-5, atol=1e-6)
    clocks = {tuple(each.clock) for each in found.results}
    assert len(clocks) == 2  # by seed alone
    losses = found.stacked("personal/test/loss")
    assert len({each.tobytes() for each in losses}) == 4
