import json

import numpy as np
import pytest

from pfljax.report.columns import COLUMNS
from pfljax.report.groups import group_runs
from pfljax.report.runs import read_run
from pfljax.report.tables import CHOSEN, calibration_table, comparison_table, once


@pytest.fixture(scope="module")
def groups(comparison_folders):
    return group_runs(read_run(folder) for folder in comparison_folders)


def arrays_of(comparison_folders, name):
    """Arrays of the three seeds of an algorithm, read without the package."""
    chosen = [f for f in comparison_folders if f.name[:-1] == name]
    return [dict(np.load(folder / "per_client.npz")) for folder in chosen]


def row_of(table, method, judged):
    (row,) = [r for r in table.rows if r.method == method and judged in r.judged]
    return row


def test_numbers_over_clients_by_hand(groups, comparison_folders):
    row = row_of(comparison_table(groups), "ditto", "personal")
    for i, arrays in enumerate(arrays_of(comparison_folders, "ditto")):
        last = arrays["personal/test/accuracy"][-1].astype(float)
        expected = {
            "accuracy": last.mean(),
            "std_clients": np.sqrt(((last - last.mean()) ** 2).sum() / len(last)),
            "weighted": last @ arrays["test_size"] / arrays["test_size"].sum(),
            "worst10": np.sort(last)[:2].mean(),
            "best10": np.sort(last)[-2:].mean(),
            "ece": arrays["personal/test/ece"][-1].mean(),
            "mb_up": 52_000 * 40,
        }
        for key, value in expected.items():
            assert row.values[key][i] == pytest.approx(value, rel=1e-5), key
    assert row.seeds == (0, 1, 2)


def test_worse_than_local_pairs_seeds(groups, comparison_folders):
    row = row_of(comparison_table(groups), "fedper", "personal")
    pairs = zip(
        arrays_of(comparison_folders, "fedper"),
        arrays_of(comparison_folders, "local"),
        strict=True,
    )
    key = "personal/test/accuracy"
    expected = [np.mean(ours[key][-1] < local[key][-1]) for ours, local in pairs]
    np.testing.assert_allclose(row.values["worse_than_local"], expected)
    assert len(set(expected)) > 1  # else pairing by seed would not be seen


def test_local_is_not_compared_with_itself(groups):
    row = row_of(comparison_table(groups), "local only", "personal")
    assert np.isnan(row.values["worse_than_local"]).all()


@pytest.mark.parametrize("change", [{"sha256": "other rows"}, {}])
def test_baseline_needs_the_same_rows(make_run, tmp_path, change):
    ours = make_run(tmp_path / "ours", "ditto", 0)
    local = make_run(tmp_path / "local", "local", 0)
    manifest = json.loads((local / "partition.json").read_text()) | change
    (local / "partition.json").write_text(json.dumps(manifest))
    table = comparison_table(group_runs(map(read_run, (ours, local))))
    share = row_of(table, "ditto", "personal").values["worse_than_local"]
    assert np.isnan(share).all() == bool(change)


def test_baseline_needs_the_same_seed(make_run, tmp_path):
    folders = [
        make_run(tmp_path / "ours", "ditto", 0),
        make_run(tmp_path / "local", "local", 1),
    ]
    table = comparison_table(group_runs(map(read_run, folders)))
    assert np.isnan(row_of(table, "ditto", "personal").values["worse_than_local"]).all()


def test_a_baseline_setting_does_not_split_seeds(make_run, tmp_path):
    folders = [
        make_run(tmp_path / f"{seed}", "ditto", seed, baseline=f"local{seed}")
        for seed in range(2)
    ]
    (group,) = group_runs(map(read_run, folders))
    assert len(group.runs) == 2


def test_baseline_of_the_summary_is_used_without_local_runs(make_run, tmp_path):
    folder = make_run(tmp_path / "ours", "ditto", 0)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(
        json.dumps(summary | {"worse_than_local": 0.25})
    )
    table = comparison_table(group_runs([read_run(folder)]))
    assert row_of(table, "ditto", "personal").values["worse_than_local"] == [0.25]


def test_mixture_rows_by_hand(groups, comparison_folders):
    table = comparison_table(groups)
    chosen = row_of(table, "SuPerFed-MM", "chosen on validation")
    half = row_of(table, "SuPerFed-MM", "λ = 0.5")
    oracle = row_of(table, "SuPerFed-MM", "oracle (chosen on test)")
    ensemble = row_of(table, "SuPerFed-MM", "ensemble over λ")
    local = arrays_of(comparison_folders, "local")
    for i, arrays in enumerate(arrays_of(comparison_folders, "superfed")):
        test = arrays["mixture/test/accuracy"]
        best = [
            min(np.flatnonzero(v == v.max()), key=lambda index: (abs(index - 5), index))
            for v in arrays["mixture/validation/accuracy"]
        ]
        picked = np.array([test[k, b] for k, b in enumerate(best)])
        assert chosen.values["accuracy"][i] == pytest.approx(picked.mean(), rel=1e-5)
        assert half.values["accuracy"][i] == pytest.approx(test[:, 5].mean(), rel=1e-5)
        top = test.max(1).mean()
        assert oracle.values["accuracy"][i] == pytest.approx(top, rel=1e-5)
        of_all = arrays["mixture/test/ensemble/accuracy"]
        assert ensemble.values["accuracy"][i] == pytest.approx(of_all.mean(), rel=1e-5)
        worse = np.mean(of_all < local[i]["personal/test/accuracy"][-1])
        assert ensemble.values["worse_than_local"][i] == pytest.approx(worse)
        worse = np.mean(picked < local[i]["personal/test/accuracy"][-1])
        assert chosen.values["worse_than_local"][i] == pytest.approx(worse)
    assert not oracle.ranked
    assert chosen.ranked


def test_chosen_round_has_its_own_numbers(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0)
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").open()]
    picked = {"round": 12, "evaluations": lines[11]["evaluations"]}
    summary["chosen_on_validation"] = picked
    (folder / "summary.json").write_text(json.dumps(summary))
    local = make_run(tmp_path / "local", "local", 0)
    table = comparison_table(group_runs(map(read_run, (folder, local))), CHOSEN)
    row = row_of(table, "ditto", "personal")
    with np.load(folder / "per_client.npz") as file:
        ours = file["personal/test/accuracy"][2]
    (theirs_at,) = row_of(table, "local", "personal").rounds  # its own choice
    with np.load(local / "per_client.npz") as file:
        theirs = file["personal/test/accuracy"][theirs_at // 4 - 1]
    assert row.rounds == (12,)
    assert row.values["accuracy"][0] == pytest.approx(ours.mean(), rel=1e-6)
    assert row.values["mb_down"] == [52_000 * 12]
    expected = np.mean(ours < theirs)
    assert expected > 0
    assert row.values["worse_than_local"] == [pytest.approx(expected)]


def test_no_chosen_round_no_rows(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0)
    summary = json.loads((folder / "summary.json").read_text())
    summary["chosen_on_validation"] = None
    (folder / "summary.json").write_text(json.dumps(summary))
    assert comparison_table(group_runs([read_run(folder)]), CHOSEN).rows == ()


def test_what_is_judged_is_said(groups):
    judged = {(r.method, r.judged) for r in comparison_table(groups).rows}
    assert ("FedAvg", "server, after the newest broadcast") in judged
    assert ("FedAvg", "server + 5 local steps, after the newest broadcast") in judged
    assert ("ditto", "personal, after the newest broadcast") in judged


def test_the_view_of_a_record_finds_its_clients(make_run, tmp_path):
    """Models judged after local training have an array of their own, "trained"."""
    folder, local = (make_run(tmp_path / n, n, 0) for n in ("ditto", "local"))
    summary = json.loads((folder / "summary.json").read_text())
    with np.load(folder / "per_client.npz") as file:
        arrays = dict(file)
    arrays["trained/test/accuracy"] = np.zeros_like(arrays["personal/test/accuracy"])
    np.savez(folder / "per_client.npz", **arrays)
    records = summary["last"]["evaluations"]
    (own,) = [r for r in records if (r["model"], r["split"]) == ("personal", "test")]
    records.append(own | {"when": "after local training"})
    (folder / "summary.json").write_text(json.dumps(summary))
    table = comparison_table(group_runs(map(read_run, (folder, local))))
    row = row_of(table, "ditto", "after local training")
    assert row.values["worse_than_local"] == [1.0]


def test_calibration_and_loss_have_a_table(groups, comparison_folders):
    table = calibration_table(comparison_table(groups))
    row = row_of(table, "ditto", "personal")
    for i, arrays in enumerate(arrays_of(comparison_folders, "ditto")):
        for key in ("loss", "brier", "ece", "mce", "mce_batchwise", "top5"):
            mean = arrays[f"personal/test/{key}"][-1].mean()
            assert row.values[key][i] == pytest.approx(mean, rel=1e-5), key
    assert "Test metrics at the last round" in table.caption
    assert table.name == "last_calibration"


def test_detection_has_a_column_where_a_run_asked_for_it(make_run, tmp_path):
    asked, other = (make_run(tmp_path / name, name, 0) for name in ("ditto", "local"))
    plain = calibration_table(comparison_table(group_runs([read_run(other)])))
    assert "auroc" not in {column.key for column in plain.columns}
    assert "AUROC" not in plain.caption
    summary = json.loads((asked / "summary.json").read_text())
    for record in summary["last"]["evaluations"]:
        record["metrics"]["auroc"] = {"mean": 0.75}
    (asked / "summary.json").write_text(json.dumps(summary))
    both = group_runs(map(read_run, (asked, other)))
    table = calibration_table(comparison_table(both))
    assert "auroc" in {column.key for column in table.columns}
    assert "AUROC" in table.caption
    assert row_of(table, "ditto", "personal").values["auroc"] == [0.75]
    assert np.isnan(row_of(table, "local", "personal").values["auroc"]).all()


def test_a_spread_is_not_ranked():
    better = {column.key: column.better for column in COLUMNS}
    assert (better["std_clients"], better["accuracy"], better["ece"]) == (0, 1, -1)


def test_runs_of_two_problems_are_not_ranked(make_run, tmp_path):
    folders = [
        make_run(tmp_path / name, algorithm=name, dataset=dataset)
        for name, dataset in (("fedavg", "digits"), ("ditto", "mnist"))
    ]
    table = comparison_table(group_runs(map(read_run, folders)))
    assert "The runs differ in dataset: their numbers are not of one" in table.caption
    assert not any(row.ranked for row in table.rows)
    alike = comparison_table(group_runs(map(read_run, folders[:1])))
    assert "differ" not in alike.caption
    assert all(row.ranked for row in alike.rows)


@pytest.mark.parametrize("chosen", [40, 36])
def test_the_round_of_validation_is_stated_once(make_run, tmp_path, chosen):
    folder = make_run(tmp_path / "run", "ditto", 0)
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    evaluations = lines[chosen - 1]["evaluations"]
    summary["chosen_on_validation"] = {"round": chosen, "evaluations": evaluations}
    (folder / "summary.json").write_text(json.dumps(summary))
    groups = group_runs([read_run(folder)])
    both = [comparison_table(groups, at) for at in ("last", CHOSEN)]
    stated, repeated = once(both)
    is_last = chosen == 40
    assert [table.name for table in stated] == ["last", "validation"][: 2 - is_last]
    assert [table.name for table in repeated] == ["validation"] * is_last
    told = "at the last round, which all runs chose on validation data too, over all"
    assert (told in stated[0].caption) == is_last
