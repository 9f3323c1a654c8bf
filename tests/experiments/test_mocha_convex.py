"""MOCHA on real clients: examples, features and tables, on made-up files."""

import numpy as np
import pytest

BALANCED = "landmine, balanced"
HEAD = "| data | method | published, unverified | error, % | worst client | chosen |"


@pytest.fixture
def raw(tmp_path):
    """A folder of both archives, small; a label is the sign of a feature."""
    rng = np.random.default_rng(0)
    count = 60
    y = rng.integers(0, 2, count)
    task = np.arange(count) % 3
    x = rng.normal(size=(count, 9))
    x[:, 0] = np.abs(x[:, 0]) * (2 * y - 1)
    np.savez(tmp_path / "landmine.npz", x=x, y=y.astype(np.uint8), task=task)
    np.savez(
        tmp_path / "uci_har.npz",
        seg=rng.normal(size=(count + 1, 64, 9)).astype(np.float32),
        halves=np.stack([np.arange(count), np.arange(count) + 1], 1),
        y=y,
        user=1 + task,
        class_names=np.array(["WALKING", "SITTING"]),
    )
    return tmp_path


def test_features_are_statistics_of_the_windows(study):
    windows = np.random.default_rng(0).normal(size=(5, 128, 9))
    found = study("mocha_convex").features(windows)
    assert found.shape == (5, 168)
    np.testing.assert_allclose(found[:, :9], windows.mean(1))
    lengths = np.linalg.norm(windows[:, :, 3:6], axis=2)
    np.testing.assert_allclose(found[:, 10], lengths.mean(1))
    np.testing.assert_allclose(found[:, 24:33], windows.min(1))
    # A sine of 20 periods has its power in the third band of eight.
    windows[:, :, 0] = np.sin(2 * np.pi * 20 * np.arange(128) / 128)
    power = study("mocha_convex").features(windows)[:, 72::12]
    assert power.shape == (5, 8)
    assert (power.argmax(1) == 2).all()


def test_clients_are_persons_and_fields(study, raw):
    study = study("mocha_convex")
    sitting = study.activity(raw)
    np.testing.assert_array_equal(sitting.y, np.load(raw / "uci_har.npz")["y"])
    np.testing.assert_array_equal(np.bincount(sitting.client), [20] * 3)
    assert np.abs(sitting.x.mean(0)).max() < 1e-4
    everything, even = (study.DATA[name](raw) for name in ("landmine", BALANCED))
    for field in range(3):
        without, mines = np.bincount(everything.y[everything.client == field])
        wanted = [min(without, mines), mines]
        found = np.bincount(even.y[even.client == field])
        np.testing.assert_array_equal(found, wanted)


def test_test_examples_stay_where_no_row_is_for_validation(study, raw):
    """Validation does not change the test examples."""
    study = study("mocha_convex")
    arrays = study.landmine(raw)
    tests = []
    for validation in (study.VALIDATION, 0.0):
        dealt = study.federation(arrays, validation, seed=1)
        spans = zip(dealt.test.offset, dealt.test.size, strict=True)
        rows = [dealt.index[offset : offset + size] for offset, size in spans]
        tests.append(np.concatenate(rows))
    np.testing.assert_array_equal(*tests)


def test_published_errors_are_found(study):
    study = study("mocha_convex")
    assert study.published("activity", "MOCHA") == 0.46
    assert np.isnan(study.published(BALANCED, "MOCHA"))


@pytest.mark.slow
def test_the_table_of_a_small_run(study, raw, tmp_path, capsys):
    study = study("mocha_convex")
    places = {"out": str(tmp_path / "out"), "results": str(tmp_path)}
    rows = study.main(str(raw), seeds=(0, 1), rounds=5, sets=("landmine",), **places)
    assert [row.method for row in rows] == ["local", "global", "FedAvg", "MOCHA"]
    # Its examples are separable.
    assert all(row.error < 30 for row in rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == HEAD
    assert lines[2].startswith("| landmine | local | 23.43 | ")
    assert (tmp_path / "mocha_convex_small.csv").exists()
