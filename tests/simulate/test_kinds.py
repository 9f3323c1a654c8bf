"""Runs of real targets: predictions, and what needs classes."""

import numpy as np
import pytest

import pfljax
from pfljax import data
from pfljax.evaluation.records import records
from pfljax.landscape.finished import Finished
from pfljax.runs.settings import Experiment
from pfljax.simulate import personal


@pytest.fixture(scope="module")
def clients():
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    arrays = data.from_arrays(x, x[:, 0] + 0.5, name="line")
    return data.federate(arrays, "iid", num_clients=3, seed=0)


@pytest.fixture(scope="module")
def finished(clients, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real") / "run"
    job = Experiment("fedavg", rounds=1, cohort=2, out=str(folder))
    pfljax.run(job, clients, quiet=True, report=False)
    return folder


def test_predictions_have_the_error_of_the_run(finished, clients, tmp_path):
    columns = personal.predictions(finished, clients)
    error = np.square(columns["prediction"] - columns["label"])
    theirs = [error[columns["client"] == client].mean() for client in range(3)]
    reported = pfljax.result(finished).clients["personal/test/rmse"][-1]
    np.testing.assert_allclose(np.sqrt(theirs), reported, rtol=1e-5)
    assert personal.write(columns, tmp_path / "p.csv") == [tmp_path / "p.csv"]


def test_what_needs_classes_is_refused(finished, clients):
    with pytest.raises(ValueError, match="choose a run of classes"):
        Finished(finished, clients)
    for wrong in ({"ood_examples": 5}, {"monitor": "accuracy"}):
        job = Experiment("fedavg", rounds=1, cohort=2, out="unused", **wrong)
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is "):
            pfljax.run(job, clients, quiet=True)


def test_a_client_without_the_metric_is_left_out_and_one_that_diverged_is_not():
    method = type("", (), {"adaptation_steps": 0})
    values = {"auc": [0.5, np.nan, 0.7], "loss": [1.0, 1.0, 1.0]}
    lost = {"auc": [0.5, np.nan, 0.7], "loss": [1.0, np.nan, 1.0]}
    for metrics, expected in ((values, 0.6), (lost, None)):
        arrays = {f"personal/test/{n}": np.array(v) for n, v in metrics.items()}
        sizes, groups = {"test": np.ones(3)}, {"all": np.arange(3)}
        (line,) = records(method, arrays, sizes, groups)
        assert line["metrics"]["auc"]["mean"] == (expected and pytest.approx(expected))
