"""Which method is better, from synthetic run folders."""

import numpy as np
import pytest
from scipy import stats

from pfljax.evaluation import significance
from pfljax.report import pairs
from pfljax.report.lead import make_lead
from pfljax.report.pairs import Scores
from pfljax.report.seeds import group_runs
from pfljax.report.tidy import main_means, tidy
from pfljax.runs.folder import read_partition, write_partition
from pfljax.runs.result import result

LEAD = make_lead("accuracy")
KEY = "personal/test/accuracy"


def scores(folders):
    groups = group_runs(map(result, folders))
    means = main_means(tidy(groups))
    return [pairs.make_scores(group, means[group.label], LEAD) for group in groups]


@pytest.fixture(scope="module")
def comparisons(comparison_folders):
    table, refusals = pairs.compare(scores(comparison_folders))
    assert refusals == []
    return table


def row_of(table, *methods):
    rows = table[table.method.isin(methods) & table.against.isin(methods)]
    return rows.iloc[0]


def test_the_best_and_the_baselines_are_compared_with_all(comparisons):
    order = ["SuPerFed-MM", "ditto", "fedper", "local only", "FedAvg"]
    best = [("SuPerFed-MM", other) for other in order[1:]]
    rest = [("ditto", "local only"), ("fedper", "local only"), ("local only", "FedAvg")]
    got = list(zip(comparisons.method, comparisons.against, strict=True))
    assert got == [*best, *rest]
    assert comparisons.with_best.tolist() == [True] * 4 + [False] * 3


def test_numbers_by_hand_from_the_arrays(comparisons, comparison_folders):
    last = {}
    for folder in comparison_folders:
        with np.load(folder / "clients.npz") as arrays:
            last[folder.name] = arrays[KEY][-1].astype(float)
    ours, theirs = (
        np.array([last[f"{name}{seed}"] for seed in range(3)])
        for name in ("ditto", "local")
    )
    row = row_of(comparisons, "ditto", "local only")
    assert row.difference == pytest.approx((ours - theirs).mean())
    assert row.low < row.difference < row.high
    assert row.p_wilcoxon == 0.25  # the least of three seeds
    win, lose = np.sum(ours > theirs), np.sum(ours < theirs)
    assert (row.win, row.tie, row.lose) == (win, 0, lose)
    # Clients are the same in all seeds: each counts once.
    by_client = (ours - theirs).mean(axis=0)
    p = stats.wilcoxon(by_client.round(6)).pvalue
    assert row.p_clients == pytest.approx(p, rel=1e-4)


@pytest.mark.parametrize("with_best", [True, False])
def test_holm_is_over_the_rows_with_the_best_and_over_the_others(
    comparisons, with_best
):
    family = comparisons[comparisons.with_best == with_best]
    expected = significance.holm(family.p.to_numpy())
    np.testing.assert_allclose(family.p_holm.to_numpy(float), expected)
    assert (family.p_holm >= family.p).all()


def change_manifest(folder, **change):
    write_partition(folder, read_partition(folder) | change, {})


def test_runs_of_other_clients_or_data_are_not_compared(make_run, tmp_path):
    folders = [make_run(tmp_path / name, name, 0) for name in ("ditto", "local")]
    change_manifest(folders[1], sha256="cd" * 32)
    table, refusals = pairs.compare(scores(folders))
    assert table.empty
    assert refusals == [
        "Not compared: ditto and local have other clients or data under seed 0; run "
        "both on one data set, partition and seed."
    ]


def test_runs_of_other_seeds_are_not_compared(make_run, tmp_path):
    folders = [
        make_run(tmp_path / "a", "ditto", 0),
        make_run(tmp_path / "b", "local", 1),
    ]
    table, refusals = pairs.compare(scores(folders))
    assert table.empty
    assert "ditto has seeds 0 and local has 1" in refusals[0]


def test_seeds_that_one_alone_has_are_left_out(make_run, tmp_path):
    folders = [make_run(tmp_path / f"d{seed}", "ditto", seed) for seed in (0, 1, 2)]
    folders += [make_run(tmp_path / f"l{seed}", "local", seed) for seed in (2, 0)]
    ours, theirs = scores(folders)
    expected = [ours.means[s] - theirs.means[s] for s in (0, 2)]
    differences = pairs.pair(ours, theirs)
    np.testing.assert_array_equal(differences.means, expected)
    by_client = [values.mean() for values in differences.clients]
    np.testing.assert_allclose(by_client, expected, rtol=1e-5)


def test_clients_without_test_examples_do_not_count():
    a = Scores("a", {0: 0.5}, {0: np.array([0.5, np.nan, 0.7])}, {0: "x"})
    b = Scores("b", {0: 0.4}, {0: np.array([0.4, np.nan, 0.5])}, {0: "x"})
    (clients,) = pairs.pair(a, b).clients
    np.testing.assert_allclose(clients, [0.1, 0.2])


def test_fine_tuned_fedavg_is_a_baseline(make_run, tmp_path):
    folders = [
        make_run(tmp_path / f"{name}{finetune}", name, hyper={"finetune": finetune})
        for name, finetune in (("fedavg", 0), ("fedavg", 20), ("ditto", 5))
    ]
    baselines = [s.method for s in scores(folders) if s.is_baseline]
    assert baselines == ["fedavg (finetune=20)"]
