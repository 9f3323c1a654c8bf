"""The numbers of the tables, by hand from the arrays of synthetic runs."""

import json

import numpy as np
import pytest

from pfljax.report import markup
from pfljax.report.frames import make_frame
from pfljax.report.seeds import group_runs
from pfljax.report.tables import Column, make_table, values_by_seed
from pfljax.report.tidy import ORACLE, tidy
from pfljax.runs.folder import read_partition, write_partition
from pfljax.runs.result import result


def frame_of(folders):
    return tidy(group_runs(map(result, folders)))


@pytest.fixture(scope="module")
def values(comparison_folders):
    return values_by_seed(frame_of(comparison_folders))


def arrays_of(folder):
    with np.load(folder / "clients.npz") as arrays:
        return dict(arrays)


def arrays_by_seed(comparison_folders, name):
    return [arrays_of(f) for f in comparison_folders if f.name[:-1] == name]


def test_numbers_over_clients_by_hand(values, comparison_folders):
    rows = values.loc["ditto"].loc["personal"]
    assert rows.index.tolist() == [0, 1, 2]
    for seed, arrays in enumerate(arrays_by_seed(comparison_folders, "ditto")):
        last = arrays["personal/test/accuracy"][-1].astype(float)
        expected = {
            "accuracy": last.mean(),
            "accuracy.std": np.sqrt(((last - last.mean()) ** 2).sum() / len(last)),
            "accuracy.weighted": last @ arrays["test_size"] / arrays["test_size"].sum(),
            "accuracy.worst10": np.sort(last)[:2].mean(),
            "accuracy.best10": np.sort(last)[-2:].mean(),
            "bytes_up": 52_000 * 40,
        }
        for key in ("loss", "brier", "ece", "mce", "mce_batchwise", "top5"):
            expected[key] = arrays[f"personal/test/{key}"][-1].mean()
        for key, value in expected.items():
            assert rows[key][seed] == pytest.approx(value, rel=1e-5), key


def test_gains_are_over_the_same_seed_and_clients(values, comparison_folders):
    key = "personal/test/accuracy"
    ours, local = (
        [arrays[key][-1] for arrays in arrays_by_seed(comparison_folders, name)]
        for name in ("fedper", "local")
    )
    rows = values.loc["fedper"].loc["personal"]
    worse = [np.mean(a < b) for a, b in zip(ours, local, strict=True)]
    np.testing.assert_allclose(rows.worse_than_local, worse)
    assert len(set(worse)) > 1  # else pairing by seed would not be seen
    gain = [np.mean(a - b) for a, b in zip(ours, local, strict=True)]
    np.testing.assert_allclose(rows.gain_local, gain, rtol=1e-4)
    assert values.loc["local only"].loc["personal"].worse_than_local.isna().all()


@pytest.mark.parametrize(
    ("seed", "change", "known"),
    [(0, {}, True), (0, {"sha256": "other data"}, False), (1, {}, False)],
)
def test_a_baseline_needs_the_same_seed_and_data(
    make_run, tmp_path, seed, change, known
):
    ours = make_run(tmp_path / "ours", "ditto", 0)
    local = make_run(tmp_path / "local", "local", seed)
    write_partition(local, read_partition(local) | change, {})
    values = values_by_seed(frame_of([ours, local]))
    assert ("worse_than_local" in values) == known


def test_fine_tuned_fedavg_gives_gains(make_run, tmp_path):
    tuned = make_run(tmp_path / "tuned", "fedavg", 0, hyper={"finetune": 20})
    ours = make_run(tmp_path / "ours", "ditto", 0)
    values = values_by_seed(frame_of([ours, tuned]))
    a, b = (arrays_of(f)["personal/test/accuracy"][-1] for f in (ours, tuned))
    gain = values.loc["ditto"].loc["personal"].gain_tuned[0]
    assert gain == pytest.approx((a - b).mean(), rel=1e-4)


def test_fairness_by_hand(values, comparison_folders):
    rows = values.loc["ditto"].loc["personal"]
    arrays = arrays_by_seed(comparison_folders, "ditto")[0]
    a = arrays["personal/test/accuracy"][-1].astype(float)
    w = arrays["server/test/accuracy"][-1].astype(float)
    expected = {
        "variance": a.var(),
        "jain": a.mean() ** 2 / (a**2).mean(),
        "gain_server": (a - w).mean(),
        "worse_than_server": (a < w).mean(),
    }
    for tenth in range(1, 10):  # of 20 clients, on the line between neighbours
        decile = np.interp(1.9 * tenth, np.arange(20), np.sort(a))
        expected[f"p{10 * tenth}"] = decile
    for key, value in expected.items():
        assert rows[key][0] == pytest.approx(value, rel=1e-5), key


def test_mixtures_by_hand(values, comparison_folders):
    models = values.loc["SuPerFed-MM"]
    local = arrays_by_seed(comparison_folders, "local")
    for seed, arrays in enumerate(arrays_by_seed(comparison_folders, "superfed")):
        test = arrays["mixture/test/accuracy"]
        best = [
            min(np.flatnonzero(v == v.max()), key=lambda index: (abs(index - 5), index))
            for v in arrays["mixture/validation/accuracy"]
        ]
        expected = {
            "λ chosen on validation": test[np.arange(len(test)), best],
            "λ = 0.5": test[:, 5],
            ORACLE: test.max(1),
            "ensemble over λ": arrays["mixture/test/ensemble/accuracy"],
        }
        for model, clients in expected.items():
            row = models.loc[model].loc[seed]
            assert row.accuracy == pytest.approx(clients.mean(), rel=1e-5), model
            worse = np.mean(clients < local[seed]["personal/test/accuracy"][-1])
            assert row.worse_than_local == pytest.approx(worse), model


def test_the_chosen_round_has_its_own_numbers(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0)
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    picked = {"round": 12, "evaluations": lines[11]["evaluations"]}
    summary["chosen_on_validation"] = picked
    (folder / "summary.json").write_text(json.dumps(summary))
    local = make_run(tmp_path / "local", "local", 0)
    values = values_by_seed(frame_of([folder, local]), moment="chosen")
    row = values.loc["ditto"].loc["personal"].loc[0]
    ours = arrays_of(folder)["personal/test/accuracy"][2]
    theirs_at = int(values.loc["local"].loc["personal"]["round"][0])  # its own choice
    theirs = arrays_of(local)["personal/test/accuracy"][theirs_at // 4 - 1]
    assert row["round"] == 12
    assert row.accuracy == pytest.approx(ours.mean(), rel=1e-6)
    assert row.bytes_down == 52_000 * 12
    expected = np.mean(ours < theirs)
    assert expected > 0
    assert row.worse_than_local == pytest.approx(expected)


def test_a_model_after_local_training_has_its_own_clients(make_run, tmp_path):
    folder, local = (make_run(tmp_path / n, n, 0) for n in ("ditto", "local"))
    summary = json.loads((folder / "summary.json").read_text())
    arrays = arrays_of(folder)
    arrays["trained/test/accuracy"] = np.zeros_like(arrays["personal/test/accuracy"])
    np.savez(folder / "clients.npz", **arrays)
    records = summary["last"]["evaluations"]
    (own,) = [r for r in records if (r["model"], r["split"]) == ("personal", "test")]
    records.append(own | {"when": "after local training"})
    (folder / "summary.json").write_text(json.dumps(summary))
    values = values_by_seed(frame_of([folder, local]))
    row = values.loc["ditto"].loc["personal, after local training"].loc[0]
    assert row.worse_than_local == 1


SEEDS = {"a": (0.9, 0.8), "b": (0.85, 0.85), "c": (0.99, 0.99)}


def small(accuracy, **more):
    """Values of the models a, b and the oracle c, over two seeds."""
    rows = [
        {"method": "M", "model": ORACLE if model == "c" else model, "seed": seed}
        | {"round": 3, "accuracy": value}
        for model, values in accuracy.items()
        for seed, value in enumerate(values)
    ]
    return make_frame(rows).assign(**more).set_index(["method", "model", "seed"])


COLUMNS = (Column("accuracy", "Accuracy (%)", 100, ".1f", 1, spread=True),)


def test_means_with_the_sample_std_and_the_best_without_the_oracle():
    table = make_table("T", small(SEEDS | {"b": (0.8, 0.8)}), COLUMNS)
    assert [row[2] for row in table.rows] == ["85.0 ± 7.1", "80.0 ± 0.0", "99.0 ± 0.0"]
    assert table.best == {(0, 2)}
    assert not make_table("T", small(SEEDS), COLUMNS, ranked=False).best


def test_equal_rows_of_a_method_are_one():
    equal = {"a": (0.8, 0.9), "b": (0.8, 0.9)}
    (row,) = make_table("T", small(equal), COLUMNS).rows
    assert row[:3] == ["M", "a = b", "85.0 ± 7.1"]


def test_what_is_not_reached_by_some_seeds_is_said():
    column = Column("spent", "Rounds", form=".1f", better=-1)
    values = small({"a": (1, 1), "b": (2, 2)}, spent=[4.0, np.inf, np.inf, np.inf])
    table = make_table("T", values, [column])
    texts = [row[2] for row in table.rows]
    assert texts == ["not reached by 1 of 2 seeds", "not reached"]
    assert not table.best


def test_markdown_and_latex_are_escaped_and_bold():
    values = small({"a|_%": (0.9, 0.8), "b±λ": (0.7, 0.7)})
    table = make_table("Of 5 %", values, COLUMNS)
    lines = markup.markdown(table).splitlines()
    assert lines[4] == r"| M | a\|\_% | **85.0 ± 7.1** | 2 | 3 |"
    text = markup.latex(table)
    assert r"\caption{Of 5 \%.}" in text
    assert r"M & a|\_\% & \textbf{85.0 $\pm$ 7.1} & 2 & 3 \\" in text
    assert r"b$\pm$$\lambda$" in text
    assert text.count("{") == text.count("}")
    assert r"\toprule" in text
