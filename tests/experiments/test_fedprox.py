"""The figures of FedProx: cases, data, and what tables say of curves."""

import json

import numpy as np
import pytest


@pytest.fixture
def prox(study):
    return study("prox")


def test_fedprox_without_mu_and_stragglers_is_a_run_of_fedavg(prox):
    """So that figures share it; with stragglers FedAvg drops what FedProx keeps."""
    settings = [
        prox.experiment(case, "paper", None)
        for case in (
            prox.fedavg("mnist"),
            prox.fedprox("mnist", 0.0),
            prox.fedavg("mnist", 0.9),
            prox.fedprox("mnist", 0.0, 0.9),
        )
    ]
    assert settings[0] == settings[1]
    dropping, keeping = (each.participation for each in settings[2:])
    assert (dropping.drop_stragglers, keeping.drop_stragglers) == (True, False)
    assert dropping.stragglers == keeping.stragglers == 0.9


def test_every_case_has_a_folder_of_its_own(prox):
    fig3, fig12 = (
        [case for name in names for case in cases(name)]
        for names, cases in (
            (prox.SYNTHETIC, lambda name: prox.three_methods([name], prox.SHARES)),
            (["mnist"], lambda name: prox.three_methods([name], (0.5,), epochs=1)),
        )
    )
    cases = [*fig3, *fig12, prox.fedprox("mnist", 0.5, 0.5, selection="by_size")]
    folders = [
        prox.folder_of(case, prox.experiment(case, "paper", None)) for case in cases
    ]
    assert len(set(folders)) == len(cases)


@pytest.mark.parametrize("name", ["synthetic_iid", "synthetic_05_05"])
def test_devices_train_on_nine_tenths(prox, name):
    made = prox.federation(name, "paper", 1)
    assert made.num_clients == 30
    train, test = (np.asarray(part.size) for part in (made.train, made.test))
    np.testing.assert_array_equal(test, (train + test) // 10)
    assert (train + test).min() >= 50


def test_pixels_are_standardised(prox):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (50, 2, 2, 1)).astype(np.uint8)
    x[:, 0, 0] = 7
    arrays = prox.data.from_arrays(x, rng.integers(0, 3, 50), num_classes=3)
    made = prox.standardised(arrays)
    seen = (x - made.shift) / made.scale
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(seen.std(0)[1], 1, atol=1e-3)
    assert not seen[:, 0, 0].any()


def curve(prox, case, loss, accuracy):
    """A curve of two seeds and two evaluations."""
    nothing = np.full((2, 2), np.nan)
    return prox.Curve(
        case=case,
        rounds=np.array([2, 4]),
        loss=np.array(loss),
        accuracy=np.array(accuracy),
        b=nothing,
        variance=nothing,
        mu=nothing,
    )


def test_a_table_is_of_the_last_round_and_gains_are_over_fedavg(prox, study):
    fig1 = study("fig1")
    cases = prox.three_methods(["synthetic_1_1", "mnist"], (0.9,))
    curves = [
        curve(prox, case, [[9, 2], [9, 4]], [[0, 50 + 10 * i], [0, 60 + 10 * i]])
        for i, case in enumerate(cases)
    ]
    rows = [prox.row_of(one, 20) for one in curves]
    assert [row.loss for row in rows] == [3] * 6
    assert rows[0].loss_std == pytest.approx(2**0.5)
    assert [row.accuracy for row in rows] == [55, 65, 75, 85, 95, 105]
    assert "| 3.000 ± 1.414 | 55.00 ± 7.07 | 55.00 |" in prox.markdown("x", rows)
    assert "| 90 %, FedProx, mu = 1 | +20.0 | +20.0 | +20.0 |" in fig1.gains(rows)
    other = rows[2]._replace(method="FedProx, mu = 0.1", accuracy=85)
    assert "| 90 %, FedProx, mu = 0.1 | +30.0 | – | – |" in fig1.gains([*rows, other])


def test_the_best_mu_has_the_lowest_finite_loss_and_is_the_cases(prox, study):
    losses = {0.001: np.nan, 0.01: 0.5, 0.1: 0.4, 1.0: 0.6}
    assert prox.best_of(losses) == 0.1
    with pytest.raises(ValueError, match="no mu of the grid has a finite loss"):
        prox.best_of(dict.fromkeys(prox.MUS, np.inf))
    cases = prox.three_methods(
        ["synthetic_1_1", "mnist", "shakespeare"], (0.9,), {"synthetic_1_1": 0.1}
    )
    mus = [dict(case.hyper)["mu"] for case in cases if case.method == "fedprox"]
    assert mus == [0.0, 1.0, 0.1, 0.0, 1.0, 0.0, 0.001]
    assert prox.style_of(cases[2]) == prox.STYLES["FedProx, mu = 1"]
    assert prox.style_of(cases[3]) not in prox.STYLES.values()
    found = study("fig1").searched({"synthetic_1_1": losses})
    assert "| nan | 0.500 | 0.400 | 0.600 | 0.1 |" in found


def test_femnist_is_read_where_the_script_is_called(prox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"femnist/train has no \.json file"):
        prox.federation("femnist", "small", 0)
    for part, count in (("train", 9), ("test", 1)):
        user = {"x": [[0.5] * 784] * count, "y": [3] * count}
        users = {"users": ["a", "b"], "user_data": {"a": user, "b": user}}
        (tmp_path / "femnist" / part).mkdir(parents=True)
        (tmp_path / "femnist" / part / "all.json").write_text(json.dumps(users))
    made = prox.federation("femnist", "paper", 0)
    assert made.train.size.tolist() == [9, 9]
    job = prox.experiment(prox.fedavg("femnist"), "paper", None)
    assert (job.training.lr, job.participation.rounds) == (0.003, 200)


def test_shakespeare_is_some_roles_and_the_ends_of_their_rows(prox, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 80, (30 * 60, 80)).astype(np.uint8)
    made = prox.data.from_arrays(
        x, x[:, 0], client=np.repeat(np.arange(30), 60), num_classes=80
    )
    monkeypatch.setattr(prox.data, "load", lambda *names, **options: made)
    few = prox.few_roles(1)
    assert few.x.shape == (20 * 50, 20)
    row = np.flatnonzero((x[:, -20:] == few.x[53]).all(1))
    assert row % 60 == 3  # the fourth of the second role
    assert few.y[53] == x[row[0], 0]
    assert np.bincount(few.client).tolist() == [50] * 20
    with pytest.raises(ValueError, match=r"at the small scale alone,.*--scale small"):
        prox.experiment(prox.fedavg("shakespeare"), "paper", None)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ([3, 2, 1, 0.5, 0.4, 0.3, 0.2], 6),  # still falling
        ([3, 2, 2.00015, 1, 1, 1, 1], 2),  # converged, to 1e-4 a round
        ([1, 2, 1.5, 1.8, 1.9, 2.5, 3.4, 3], 5),  # by more than 1 in ten rounds
        ([1, 2, 1.5, 1.8, 1.9, 1.7, 2.5, 9], 7),
        ([1, 2, np.nan, 1], 2),
    ],
)
def test_where_the_paper_takes_a_run(prox, loss, expected):
    assert prox.EVERY == 2
    assert prox.stop(np.array(loss, float)) == expected


@pytest.mark.slow
def test_a_case_is_run_once_and_read(prox, tmp_path):
    cases = [prox.Case("synthetic_iid", "x", "fedprox_adaptive", (("mu", 1.0),))]
    options = ("small", (0, 1), 2, str(tmp_path))
    (one,), (row,) = prox.run_all(cases, *options)
    assert one.rounds.tolist() == [2]
    assert one.mu.shape == one.b.shape == (2, 1)
    assert (one.b >= 1).all()
    assert one.mu[0, 0] > 0.5
    assert 0 < row.accuracy < 100
    written = sorted(tmp_path.rglob("summary.json"))
    times = [path.stat().st_mtime_ns for path in written]
    again, _ = prox.run_all(cases, *options)
    np.testing.assert_array_equal(again[0].loss, one.loss)
    assert [path.stat().st_mtime_ns for path in written] == times
