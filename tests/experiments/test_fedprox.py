"""The figures of FedProx: cases, data, and what tables say of curves."""

import json

import numpy as np
import pytest

from pfljax.runs import checks


@pytest.fixture
def cases(study):
    return study("cases")


@pytest.fixture
def curves(study):
    return study("curves")


@pytest.fixture
def drawing(study):
    return study("drawing")


@pytest.fixture
def problems(study):
    return study("problems")


def test_fedprox_without_mu_and_stragglers_is_a_run_of_fedavg(cases, curves):
    """So that figures share it; with stragglers FedAvg drops what FedProx keeps."""
    settings = [
        curves.experiment(case, "paper", None)
        for case in (
            cases.fedavg("mnist"),
            cases.fedprox("mnist", 0.0),
            cases.fedavg("mnist", 0.9),
            cases.fedprox("mnist", 0.0, 0.9),
        )
    ]
    assert settings[0] == settings[1]
    dropping, keeping = settings[2:]
    assert (dropping.drop_stragglers, keeping.drop_stragglers) == (True, False)
    assert dropping.stragglers == keeping.stragglers == 0.9


def test_every_case_has_a_folder_of_its_own(cases, curves, problems):
    fig2 = cases.three_methods(problems.SYNTHETIC, cases.SHARES)
    fig9 = cases.three_methods(["mnist"], (0.5,), epochs=1)
    every = [*fig2, *fig9, cases.fedprox("mnist", 0.5, 0.5, selection="by_size")]
    folders = [
        curves.folder_of(case, curves.experiment(case, "paper", None)) for case in every
    ]
    assert len(set(folders)) == len(every)


@pytest.mark.parametrize("name", ["synthetic_iid", "synthetic_05_05"])
def test_devices_train_on_nine_tenths(problems, name):
    made = problems.federation(name, "paper", 1)
    assert made.num_clients == 30
    train, test = (np.asarray(part.size) for part in (made.train, made.test))
    np.testing.assert_array_equal(test, (train + test) // 10)
    assert (train + test).min() >= 50


def test_pixels_are_standardised(problems):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (50, 2, 2, 1)).astype(np.uint8)
    x[:, 0, 0] = 7
    arrays = problems.data.from_arrays(x, rng.integers(0, 3, 50), num_classes=3)
    made = problems.standardised(arrays)
    seen = (x - made.shift) / made.scale
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(seen.std(0)[1], 1, atol=1e-3)
    assert not seen[:, 0, 0].any()


def curve(curves, case, loss, accuracy):
    """A curve of two seeds and two evaluations."""
    nothing = np.full((2, 2), np.nan)
    return curves.Curve(
        case=case,
        rounds=np.array([2, 4]),
        loss=np.array(loss),
        accuracy=np.array(accuracy),
        b=nothing,
        variance=nothing,
        mu=nothing,
    )


def test_a_table_is_of_the_last_round_and_gains_are_over_fedavg(cases, curves, study):
    fig1 = study("fig1")
    late = cases.three_methods(["synthetic_1_1", "mnist"], (0.9,))
    drawn = [
        curve(curves, case, [[9, 2], [9, 4]], [[0, 50 + 10 * i], [0, 60 + 10 * i]])
        for i, case in enumerate(late)
    ]
    rows = [curves.row_of(one, 20) for one in drawn]
    assert [row.loss for row in rows] == [3] * 6
    assert rows[0].loss_std == pytest.approx(2**0.5)
    assert [row.accuracy for row in rows] == [55, 65, 75, 85, 95, 105]
    assert "| 3.000 ± 1.414 | 55.00 ± 7.07 | 55.00 |" in curves.markdown("x", rows)
    assert "| 90 %, FedProx, mu = 1 | +20.0 | +20.0 | +20.0 |" in fig1.gains(rows)
    other = rows[2]._replace(method="FedProx, mu = 0.1", accuracy=85)
    assert "| 90 %, FedProx, mu = 0.1 | +30.0 | – | – |" in fig1.gains([*rows, other])


def test_the_best_mu_has_the_lowest_finite_loss_and_is_the_cases(
    cases, curves, drawing, study
):
    losses = {0.001: np.nan, 0.01: 0.5, 0.1: 0.4, 1.0: 0.6}
    assert curves.best_of(losses) == 0.1
    with pytest.raises(ValueError, match="no mu of the grid has a finite loss"):
        curves.best_of(dict.fromkeys(cases.MUS, np.inf))
    late = cases.three_methods(
        ["synthetic_1_1", "mnist", "shakespeare"], (0.9,), {"synthetic_1_1": 0.1}
    )
    mus = [dict(case.hyper)["mu"] for case in late if case.method == "fedprox"]
    assert mus == [0.0, 1.0, 0.1, 0.0, 1.0, 0.0, 0.001]
    assert drawing.style_of(late[2]) == drawing.STYLES["FedProx, mu = 1"]
    assert drawing.style_of(late[3]) not in drawing.STYLES.values()
    found = study("fig1").searched({"synthetic_1_1": losses})
    assert "| nan | 0.500 | 0.400 | 0.600 | 0.1 |" in found


def test_femnist_is_read_where_the_script_is_called(
    cases, curves, problems, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"femnist/train has no \.json file"):
        problems.federation("femnist", "small", 0)
    for part, count in (("train", 9), ("test", 1)):
        user = {"x": [[0.5] * 784] * count, "y": [0, *[3] * (count - 1)]}
        users = {"users": ["a", "b"], "user_data": {"a": user, "b": user}}
        (tmp_path / "femnist" / part).mkdir(parents=True)
        (tmp_path / "femnist" / part / "all.json").write_text(json.dumps(users))
    made = problems.federation("femnist", "paper", 0)
    assert made.train.size.tolist() == [9, 9]
    job = curves.experiment(cases.fedavg("femnist"), "paper", None)
    assert (job.lr, job.rounds) == (0.003, 200)


def test_shakespeare_is_some_roles_and_the_ends_of_their_examples(
    cases, curves, problems, monkeypatch
):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 80, (30 * 60, 80)).astype(np.uint8)
    made = problems.data.from_arrays(
        x, x[:, 0], client=np.repeat(np.arange(30), 60), num_classes=80
    )
    monkeypatch.setattr(problems.data, "load", lambda *names, **options: made)
    few = problems.few_roles(1)
    assert few.x.shape == (20 * 50, 20)
    row = np.flatnonzero((x[:, -20:] == few.x[53]).all(1))
    assert row % 60 == 3  # the fourth of the second role
    assert few.y[53] == x[row[0], 0]
    assert np.bincount(few.client).tolist() == [50] * 20
    with pytest.raises(ValueError, match=r"at the small scale alone,.*--scale small"):
        curves.experiment(cases.fedavg("shakespeare"), "paper", None)


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
def test_where_the_paper_takes_a_run(curves, loss, expected):
    assert curves.EVERY == 2
    assert curves.stop(np.array(loss, float)) == expected


@pytest.mark.slow
def test_a_case_is_run_once_and_read(cases, curves, tmp_path):
    adaptive = [cases.Case("synthetic_iid", "x", "fedprox_adaptive", (("mu", 1.0),))]
    options = ("small", (0, 1), 2, str(tmp_path))
    (one,), (row,) = curves.run_all(adaptive, *options)
    assert one.rounds.tolist() == [2]
    assert one.mu.shape == one.b.shape == (2, 1)
    assert (one.b >= 1).all()
    assert one.mu[0, 0] > 0.5
    assert 0 < row.accuracy < 100
    written = sorted(tmp_path.rglob("summary.json"))
    times = [path.stat().st_mtime_ns for path in written]
    again, _ = curves.run_all(adaptive, *options)
    np.testing.assert_array_equal(again[0].loss, one.loss)
    assert [path.stat().st_mtime_ns for path in written] == times


def test_rivals_keep_what_stragglers_did(study, curves):
    late = [case for case in study("rivals").cases() if case.stragglers]
    assert len(late) == 8
    for case in late:
        job = curves.experiment(case, "paper", None)
        checks.check(job)
        assert job.drop_stragglers == (case.label == "FedAvg")
