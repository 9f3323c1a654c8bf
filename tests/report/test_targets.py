"""What runs spend until they reach a target, by hand, and runs judged again."""

import csv
import json

import numpy as np
import pytest

from pfljax import report
from pfljax.cli import parser
from pfljax.report import formats
from pfljax.report.clients import recorded_baselines
from pfljax.report.groups import group_runs
from pfljax.report.runs import read_run
from pfljax.report.tables import comparison_table, fairness_table
from pfljax.report.targets import course_of, default_targets, target_table


def arrays_of(folder):
    with np.load(folder / "per_client.npz") as arrays:
        return dict(arrays)


def rewritten(folder, **changed):
    """The folder with other arrays."""
    np.savez(folder / "per_client.npz", **(arrays_of(folder) | changed))
    return folder


def with_curve(folder, curve):
    """The folder with these means of the personal model in its log."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if "evaluations" in line]
    for line, mean in zip(evaluated, curve, strict=True):
        for record in line["evaluations"]:
            record["metrics"]["accuracy"]["mean"] = mean
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def with_clock(folder, seconds):
    """The folder with a virtual clock of so many seconds a round."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line | {"clock": seconds * line["round"]} for line in lines]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def table_of(*folders, targets=(0.5, 0.8)):
    return target_table(group_runs(map(read_run, folders)), targets)


def defaults(groups):
    return default_targets([[course_of(run) for run in g.runs] for g in groups])


CURVE = [0.2, 0.4, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 0.7, 0.7]  # at rounds 4, 8, ...


def test_rounds_bytes_and_seconds_to_a_target_by_hand(make_run, tmp_path):
    run = with_clock(with_curve(make_run(tmp_path / "a", "ditto"), CURVE), 2.5)
    table = table_of(run)
    (row,) = table.rows
    # The mean of three is .4, .6, .77 and .87 at rounds 12, 16, 20 and 24.
    reached = {"0.5": 16, "0.8": 24}
    for target, rounds in reached.items():
        assert row.values[f"rounds_to_{target}"] == [rounds]
        assert row.values[f"bytes_to_{target}"] == [2 * 52_000 * rounds]
        assert row.values[f"seconds_to_{target}"] == [2.5 * rounds]
    assert row.values["area"] == pytest.approx(np.mean([*CURVE[1:-1], 0.45]))
    assert row.judged == "personal, after the newest broadcast"
    titles = formats.headings(table)
    assert titles[2:5] == ["Rounds to 50 %", "MB to 50 %", "Virtual seconds to 50 %"]


def test_without_a_clock_there_is_no_column_of_seconds(make_run, tmp_path):
    table = table_of(make_run(tmp_path / "a", "ditto"))
    assert not any("seconds" in column.key for column in table.columns)


def test_a_target_that_is_not_reached_is_told(make_run, tmp_path):
    low = [0.3] * 10
    folders = [
        with_curve(make_run(tmp_path / "a", "ditto", 0), CURVE),
        with_curve(make_run(tmp_path / "b", "ditto", 1), low),
        with_curve(make_run(tmp_path / "c", "fedper", 0), low),
        with_curve(make_run(tmp_path / "d", "fedavg", 0), CURVE),
    ]
    table = table_of(*folders, targets=[0.5])
    cells = {row[0].text: row for row in formats.cells(table)}
    assert cells["ditto"][2].text == "not reached by 1 of 2 seeds"
    assert cells["fedper"][2].text == cells["fedper"][3].text == "not reached"
    assert cells["fedavg"][2].text == "16.0"
    # One number alone is the best of nothing, and infinity is none.
    assert not any(row[2].mark for row in cells.values())
    lines = list(csv.DictReader(formats.csv_seeds(table).splitlines()))
    assert [line["rounds_to_0.5"] for line in lines] == ["16.0", "", "", "16.0"]


def test_too_few_evaluations_tell_nothing(make_run, tmp_path):
    two = make_run(tmp_path / "two", "ditto", R=4, every=2)
    (row,) = table_of(two).rows
    assert np.isnan(row.values["rounds_to_0.5"]).all()
    one = make_run(tmp_path / "one", "ditto", R=4)
    assert table_of(one).rows == ()


def test_runs_of_two_problems_are_not_ranked(make_run, tmp_path):
    one = make_run(tmp_path / "one", "ditto")
    other = make_run(tmp_path / "other", "fedavg", dataset="mnist")
    assert not any(row.ranked for row in table_of(one, other).rows)
    assert all(row.ranked for row in table_of(one).rows)


def test_default_targets_are_shares_of_the_best(make_run, tmp_path):
    folders = [
        with_curve(make_run(tmp_path / "a", "ditto", 0), CURVE),
        with_curve(make_run(tmp_path / "b", "ditto", 1), [0.8] * 10),
        with_curve(make_run(tmp_path / "c", "fedper", 0), [0.3] * 10),
    ]
    groups = group_runs(map(read_run, folders))
    # The best running means of ditto's seeds are .9 and .8: half and .9 of .85.
    assert defaults(groups) == (0.42, 0.76)
    keys = {column.key for column in target_table(groups).columns}
    assert {"rounds_to_0.42", "bytes_to_0.76", "area"} <= keys
    none = with_curve(make_run(tmp_path / "d", "ditto"), [0.0] * 10)
    assert defaults(group_runs([read_run(none)])) == ()


def test_fairness_by_hand_with_gains(make_run, tmp_path):
    ours = make_run(tmp_path / "ours", "ditto")
    local = make_run(tmp_path / "local", "local")
    table = fairness_table(comparison_table(group_runs(map(read_run, (ours, local)))))
    row, alone = table.rows
    assert (row.method, alone.method) == ("ditto", "local")
    a = arrays_of(ours)["personal/test/accuracy"][-1].astype(float)
    b = arrays_of(local)["personal/test/accuracy"][-1].astype(float)
    w = arrays_of(ours)["server/test/accuracy"][-1].astype(float)
    expected = {
        "variance": a.var(),
        "jain": a.mean() ** 2 / (a**2).mean(),
        "gain_local": (a - b).mean(),
        "worse_than_local": (a < b).mean(),
        "gain_server": (a - w).mean(),
        "worse_than_server": (a < w).mean(),
    }
    for key, value in expected.items():
        assert row.values[key] == pytest.approx(value, rel=1e-5), key
    assert np.isnan(alone.values["gain_local"]).all()
    assert np.isnan(alone.values["gain_server"]).all()


def test_tables_and_judge_give_the_nine_deciles(make_run, tmp_path):
    ours = make_run(tmp_path / "ours", "ditto")
    a = arrays_of(ours)["personal/test/accuracy"][-1].astype(float)
    table = fairness_table(comparison_table(group_runs([read_run(ours)])))
    shown = [column for column in table.columns if column.title[1:2].isdigit()]
    assert [c.title for c in shown] == [f"P{q} (%)" for q in range(10, 100, 10)]
    figures = report.judge(ours)["figures"]
    for tenth, column in enumerate(shown, 1):
        # Of 20 clients: on the line between the neighbours of place 1.9, 3.8, ...
        expected = np.interp(1.9 * tenth, np.arange(20), np.sort(a))
        assert table.rows[0].values[column.key] == pytest.approx(expected), column
        assert figures[column.key] == pytest.approx(expected), column


def test_a_recorded_baseline_gives_gains(make_run, tmp_path):
    local = make_run(tmp_path / "local", "local")
    ours = make_run(tmp_path / "ours", "ditto", baseline=str(local))
    gone = make_run(tmp_path / "gone", "ditto", baseline=str(tmp_path / "nowhere"))
    a, b = (arrays_of(run)["personal/test/accuracy"][-1] for run in (ours, local))
    gains = []
    for folder in (ours, gone):
        run = read_run(folder)
        baselines = recorded_baselines([run])
        table = comparison_table(group_runs([run]), baselines=baselines)
        gains.append(table.rows[0].values["gain_local"][0])
    assert gains[0] == pytest.approx((a - b).mean(), rel=1e-5)
    assert np.isnan(gains[1])


def test_an_old_folder_is_judged_as_the_tables_are(make_run, tmp_path):
    ours = make_run(tmp_path / "ours", "ditto")
    local = make_run(tmp_path / "local", "local")
    a = arrays_of(ours)["personal/test/accuracy"][-1]
    groups = group_runs(map(read_run, (ours, local)))
    fair = fairness_table(comparison_table(groups)).rows[0].values
    spent = target_table(groups, [0.4, 1]).rows[0].values
    judged = report.judge(ours, baseline=local, targets=[0.4, 1])
    for key, value in judged["figures"].items():
        assert [value] == pytest.approx(fair[key], rel=1e-9), key
    assert judged["mean"] == pytest.approx(a.mean())
    assert [judged["area"]] == pytest.approx(spent["area"], rel=1e-6)
    assert [judged["targets"][0.4]["rounds"]] == spent["rounds_to_0.4"]
    assert np.isinf(judged["targets"][1]["bytes"])
    assert sum(judged["histogram"]) == judged["count"] == 20
    assert judged["round"] == 40


def test_clients_without_rows_do_not_count(make_run, tmp_path):
    ours = make_run(tmp_path / "ours", "ditto")
    accuracy = arrays_of(ours)["personal/test/accuracy"]
    accuracy[:, 3] = np.nan
    judged = report.judge(rewritten(ours, **{"personal/test/accuracy": accuracy}))
    rest = np.delete(accuracy[-1], 3).astype(float)
    assert judged["count"] == 19
    assert judged["mean"] == pytest.approx(rest.mean())
    assert judged["figures"]["variance"] == pytest.approx(rest.var())


def test_other_metrics_are_judged_by_name(make_run, tmp_path):
    ours = make_run(tmp_path / "ours", "ditto")
    judged = report.judge(ours, "server/validation/top5")
    expected = arrays_of(ours)["server/validation/top5"][-1]
    assert judged["figures"]["p50"] == pytest.approx(np.median(expected))
    assert judged["figures"]["gain_server"] == 0


@pytest.mark.parametrize("metric", ["accuracy", "personal/test/loss", "round", ""])
def test_a_metric_that_is_not_there_is_told(make_run, tmp_path, metric):
    ours = make_run(tmp_path / "ours", "ditto")
    with pytest.raises(ValueError, match=r"has no metric .* one of personal/test/acc"):
        report.judge(ours, metric)


@pytest.mark.parametrize(
    ("name", "seed", "rows", "message"),
    [
        ("local", 0, "cd" * 32, "is over other clients; run it with the same data"),
        ("fedavg", 0, "ab" * 32, "is a run of 'fedavg'"),
        ("local", 1, "ab" * 32, "has seed 1, and .*ours has 0; give the run of local"),
        (None, 0, "", "is not a finished run; run it first"),
    ],
)
def test_a_baseline_of_other_clients_is_refused(
    make_run, tmp_path, name, seed, rows, message
):
    ours = make_run(tmp_path / "ours", "ditto")
    other = tmp_path / "other"
    if name:
        make_run(other, name, seed)
        manifest = json.loads((other / "partition.json").read_text())
        manifest |= {"sha256": rows}
        (other / "partition.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=message):
        report.judge(ours, baseline=other)


@pytest.mark.parametrize("target", ["0", "1.5", "-1", "nan"])
def test_the_command_refuses_what_is_no_accuracy(run_folder, tmp_path, target):
    out = tmp_path / "out"
    wrong = "expected an accuracy above 0, at most 1, such as 0.8"
    with pytest.raises(ValueError, match=wrong):
        parser.run(
            ["report", str(run_folder), "--out", str(out), "--target", "0.5", target]
        )
    assert not out.exists()


def test_the_command_refuses_a_wrong_target_of_a_sweep(tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(ValueError, match=r"target is 1\.5"):
        parser.run(["report", str(tmp_path), "--target", "1.5"])


def test_the_command_shows_both_tables(run_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report.write, "_comparison_pictures", lambda *_: [])
    out = tmp_path / "out"
    parser.run(["report", str(run_folder), "--out", str(out), "--target", "0.3", "0.6"])
    told = capsys.readouterr().out
    assert "Fairness over clients at the last round, which all runs chose" in told
    assert "| Rounds to 30 % | MB to 30 % | Rounds to 60 % | MB to 60 % |" in told
    page = (out / "comparison.html").read_text(encoding="utf-8")
    for text in ("Fairness over clients", "To a target.", "Rounds to 60 %"):
        assert text in page
