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


@pytest.mark.slow
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


def scalar(outputs, y):
    return (outputs[:, 0] - y[:, 0]).mean() ** 2


def each(outputs, y, mask):
    return mask


@pytest.mark.parametrize(
    ("kind", "targets", "settings", "wrong"),
    [
        ("regression", (60,), {"loss": scalar}, "scalar"),
        ("regression", (60,), {"metrics": each}, "each"),
        ("tokens", (60, 2), {}, "targets"),
        ("tokens", (60, 3), {"model": "mlp"}, "targets"),
        ("ratings", (60,), {"model": "mlp"}, "matrix_factorization"),
    ],
)
def test_shapes_that_would_broadcast_are_refused(kind, targets, settings, wrong):
    rng = np.random.default_rng(0)
    columns = 2 if kind == "ratings" else 3
    x, y = rng.integers(0, 5, (60, columns)), rng.integers(0, 5, targets)
    arrays = data.from_arrays(x, y, task=kind, name="mine")
    clients = data.federate(arrays, "iid", num_clients=3, seed=0)
    job = Experiment("fedavg", rounds=1, cohort=2, out="unused")
    own = {k: f"{__file__}:{v.__name__}" for k, v in settings.items() if callable(v)}
    with pytest.raises(ValueError, match=wrong):
        pfljax.run(job.replace(**settings | own), clients, quiet=True)


def test_a_client_without_the_metric_is_left_out_and_one_that_diverged_is_not():
    method = type("", (), {"adaptation_steps": 0})
    values = {"auc": [0.5, np.nan, 0.7], "loss": [1.0, 1.0, 1.0]}
    lost = {"auc": [0.5, np.nan, 0.7], "loss": [1.0, np.nan, 1.0]}
    for metrics, expected in ((values, 0.6), (lost, None)):
        arrays = {f"personal/test/{n}": np.array(v) for n, v in metrics.items()}
        sizes, groups = {"test": np.ones(3)}, {"all": np.arange(3)}
        (line,) = records(method, arrays, sizes, groups)
        assert line["metrics"]["auc"]["mean"] == (expected and pytest.approx(expected))


def test_items_that_the_model_has_not_are_refused():
    x = np.stack([np.arange(60) % 6, np.arange(60) % 30], 1)
    arrays = data.from_arrays(x, np.arange(60) % 5, task="ratings", name="mine")
    clients = data.federate(arrays, "iid", num_clients=3, seed=0)
    job = Experiment("fedavg", rounds=1, cohort=2, out="unused")
    for users, items, least in ((5, 30, 6), (6, 29, 30)):
        model = f"matrix_factorization:users={users},items={items}"
        with pytest.raises(ValueError, match=f"at least {least} "):
            pfljax.run(job.replace(model=model), clients, quiet=True)
