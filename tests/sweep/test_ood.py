"""Detection of classes that a client does not hold, in a sweep."""

import csv

import numpy as np
import pytest

import tiny
from pfljax import run
from pfljax.report import sweeps
from pfljax.report.tables import values_by_seed
from pfljax.runs.folder import read_arrays
from pfljax.sweep import sweep

pytestmark = pytest.mark.slow

ASKED = tiny.TINY.replace(rounds=2, ood_examples=30, devices=1)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """(folder, results) of two seeds, whose clients hold other classes."""
    path = tmp_path_factory.mktemp("sweep")
    return path, sweep(ASKED, {"seed": [0, 1]}, out=path).results


def test_a_sweep_detects_what_its_runs_detect(swept, tmp_path):
    _, results = swept
    run(ASKED.replace(seed=1, out=str(tmp_path)), quiet=True, report=False)
    alone = read_arrays(tmp_path / "clients.npz")
    of_models = {name: value[-1] for name, value in results[1].metrics.items()}
    of_path = {f"mixture/{name}": value for name, value in results[1].path.items()}
    detected = 0
    for name, values in (of_models | of_path).items():
        if not name.endswith("auroc"):
            continue
        detected += 1
        wanted = alone[name][-1] if name in of_models else alone[name]
        np.testing.assert_allclose(values, wanted, atol=1e-5, err_msg=name)
    # Two models, the path and its ensemble; seeds differ in whose classes are ood.
    assert detected % 4 == 0
    assert detected >= 4
    first, second = (result.metrics["personal/test/auroc"] for result in results)
    assert np.abs(first - second).max() > 1e-3


def test_it_is_in_the_table(swept):
    path, results = swept
    with open(path / "sweep.csv") as file:
        rows = list(csv.DictReader(file))
    (row,) = [
        row
        for row in rows
        if row["metric"] == "auroc"
        and (row["seed"], row["evaluated"], row["split"]) == ("1", "personal", "test")
        and row["round"] == "2"
        and not row["lambda"]
    ]
    mean = np.nanmean(results[1].metrics["personal/test/auroc"][-1])
    assert float(row["mean"]) == pytest.approx(mean, abs=1e-6)
    last = values_by_seed(sweeps.tidy(sweeps.read(path)))
    personal = last.xs("personal", level="model")
    assert personal.auroc.iloc[1] == pytest.approx(mean, abs=1e-6)
