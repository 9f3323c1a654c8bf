"""A run that measures how clients differ: its log, its summary, its report."""

import json

import numpy as np
import pytest

import tiny
from pfljax.evaluation.dissimilarity import dissimilarity
from pfljax.report.key_figures import key_figures
from pfljax.runs import folder
from pfljax.runs.result import result
from pfljax.simulate import run as experiment
from pfljax.simulate import simulation
from pfljax.simulate.compare import grid
from pfljax.simulate.export import load_state
from pfljax.simulate.federation import build_federation

MEASURED = tiny.TINY.replace(
    algorithm="fedprox:mu=0.1,inexactness=True",
    dissimilarity=True,
    rounds=2,
    eval_every=2,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of the run."""
    out = tmp_path_factory.mktemp("measured") / "run"
    experiment.run(MEASURED.replace(out=str(out)), quiet=True, report=False)
    return out


@pytest.mark.slow
def test_a_run_records_it_at_evaluations(finished):
    lines = (finished / "metrics.jsonl").read_text().splitlines()
    first, last = map(json.loads, lines)
    assert "dissimilarity" not in first
    summary = folder.read_json(finished / "summary.json")
    assert summary["last"]["dissimilarity"] == last["dissimilarity"]
    _, _, state = load_state(finished)
    federation, _ = build_federation(MEASURED)
    sim = simulation.simulation(MEASURED, federation)
    expected = dissimilarity(sim.task, state.server, federation.train)
    for name, value in expected._asdict().items():
        assert last["dissimilarity"][name] == pytest.approx(float(value), rel=1e-4)
    b, variance, gradient, _ = last["dissimilarity"].values()
    np.testing.assert_allclose(variance, (b**2 - 1) * gradient**2, rtol=1e-3)
    # The inexactness is of every round's cohort.
    assert 0 < first["train_gamma"] < 1


@pytest.mark.slow
def test_the_report_shows_it(finished):
    cards = {title: rest for title, *rest in key_figures(result(finished))}
    value, note = cards["Dissimilarity B"]
    assert float(value) > 1
    assert "variance" in note


def test_local_training_beside_it_is_not_measured():
    experiments = grid([MEASURED], (0,), "x")
    measured = {e.algorithm.name: e.dissimilarity for e in experiments}
    assert measured == {"local": False, "fedprox": True, "fedavg": True}
