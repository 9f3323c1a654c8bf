"""The cost of reaching a target accuracy, computed by hand and for real runs."""

import json
import re

import numpy as np
import pytest

import tiny
from pfljax import report
from pfljax.report.curves import default_targets, group_curves, make_curve, spent_table
from pfljax.report.seeds import group_runs
from pfljax.report.tables import values_by_seed
from pfljax.report.tidy import tidy
from pfljax.runs.folder import read_partition, write_partition
from pfljax.runs.result import result

CURVE = [0.2, 0.4, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 0.7, 0.7]  # at rounds 4, 8, ...


def arrays_of(folder):
    with np.load(folder / "clients.npz") as arrays:
        return dict(arrays)


def with_lines(folder, change):
    """The folder with changed lines in its log."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(change(line)) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def with_curve(folder, curve):
    """The folder with these means of the personal model in its log."""
    means = iter(curve)

    def change(line):
        if "evaluations" in line:
            mean = next(means)
            for record in line["evaluations"]:
                record["metrics"]["accuracy"]["mean"] = mean
        return line

    with_lines(folder, change)
    summary = json.loads((folder / "summary.json").read_text())
    for record in summary["last"]["evaluations"]:
        record["metrics"]["accuracy"]["mean"] = curve[-1]
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def with_clock(folder, seconds):
    """The folder with a virtual clock of so many seconds a round."""
    return with_lines(folder, lambda line: line | {"clock": seconds * line["round"]})


def curves(*folders):
    return group_curves(tidy(group_runs(map(result, folders))))


def test_rounds_bytes_and_seconds_to_a_target_by_hand(make_run, tmp_path):
    run = with_clock(with_curve(make_run(tmp_path / "a", "ditto"), CURVE), 2.5)
    row = spent_table(curves(run), (0.5, 0.8)).iloc[0]
    # The mean of three is 0.4, 0.6, 0.77 and 0.87 at rounds 12, 16, 20 and 24.
    for target, rounds in {"0.5": 16, "0.8": 24}.items():
        assert row[f"rounds_to_{target}"] == rounds
        assert row[f"plain_rounds_to_{target}"] == rounds - (4, 8)[target == "0.8"]
        assert row[f"bytes_to_{target}"] == 2 * 52_000 * rounds
        assert row[f"seconds_to_{target}"] == 2.5 * rounds
    assert row.area == pytest.approx(np.mean([*CURVE[1:-1], 0.45]))
    # A run's own curve is that of the table.
    from_run, from_table = make_curve(result(run)), curves(run)["ditto"][0]
    for ours, theirs in zip(from_run, from_table, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_target_that_is_not_reached_is_infinite(make_run, tmp_path):
    run = with_curve(make_run(tmp_path / "b", "ditto"), [0.3] * 10)
    row = spent_table(curves(run), [0.5]).iloc[0]
    assert row["rounds_to_0.5"] == row["bytes_to_0.5"] == np.inf
    assert np.isnan(row["seconds_to_0.5"])  # no clock


def test_too_few_evaluations_have_the_plain_curve(make_run, tmp_path):
    two = with_curve(make_run(tmp_path / "two", "ditto", R=4, every=2), [0.4, 0.6])
    row = spent_table(curves(two), [0.5]).iloc[0]
    assert np.isnan(row["rounds_to_0.5"])
    assert row["plain_rounds_to_0.5"] == 4
    mean_of_two = spent_table(curves(two), [0.5], window=2).iloc[0]
    assert mean_of_two["rounds_to_0.5"] == 4
    one = make_run(tmp_path / "one", "ditto", R=4)
    assert np.isnan(spent_table(curves(one), [0.5]).iloc[0].area)


def test_default_targets_are_shares_of_the_best(make_run, tmp_path):
    folders = [
        with_curve(make_run(tmp_path / "a", "ditto", 0), CURVE),
        with_curve(make_run(tmp_path / "b", "ditto", 1), [0.8] * 10),
        with_curve(make_run(tmp_path / "c", "fedper", 0), [0.3] * 10),
    ]
    # The best running means of ditto's seeds are 0.9 and 0.8: shares of 0.85.
    assert default_targets(curves(*folders)) == (0.42, 0.76)
    none = with_curve(make_run(tmp_path / "d", "ditto"), [0.0] * 10)
    assert default_targets(curves(none)) == ()


def test_a_run_is_evaluated_as_the_tables_are(make_run, tmp_path):
    ours = make_run(tmp_path / "ours", "ditto")
    local = make_run(tmp_path / "local", "local")
    frame = tidy(group_runs(map(result, (ours, local))))
    fair = values_by_seed(frame).loc["ditto", "personal"].loc[0]
    row = spent_table(curves(ours), [0.4, 1]).iloc[0]
    got = report.evaluate(ours, baseline=local, targets=[0.4, 1])
    for key, value in got["figures"].items():
        if np.isfinite(value):
            assert value == pytest.approx(fair[key], rel=1e-9), key
    a = arrays_of(ours)["personal/test/accuracy"][-1]
    assert got["mean"] == pytest.approx(a.mean())
    assert got["area"] == pytest.approx(row.area, rel=1e-6)
    assert got["targets"][0.4]["rounds"] == row["rounds_to_0.4"]
    assert np.isinf(got["targets"][1]["bytes"])
    assert sum(got["histogram"]) == got["count"] == 20
    assert got["round"] == 40


def test_clients_without_examples_do_not_count(make_run, tmp_path):
    ours = make_run(tmp_path / "ours", "ditto")
    accuracy = arrays_of(ours)["personal/test/accuracy"]
    accuracy[:, 3] = np.nan
    changed = arrays_of(ours) | {"personal/test/accuracy": accuracy}
    np.savez(ours / "clients.npz", **changed)
    got = report.evaluate(ours)
    rest = np.delete(accuracy[-1], 3).astype(float)
    assert got["count"] == 19
    assert got["mean"] == pytest.approx(rest.mean())
    assert got["figures"]["variance"] == pytest.approx(rest.var())


def test_other_metrics_go_by_name(make_run, tmp_path):
    ours = make_run(tmp_path / "ours", "ditto")
    got = report.evaluate(ours, "server/validation/top5")
    expected = arrays_of(ours)["server/validation/top5"][-1]
    assert got["figures"]["p50"] == pytest.approx(np.median(expected))
    assert got["figures"]["gain_server"] == 0
    assert report.evaluate(ours, "personal/test/loss")["histogram"] is None
    with pytest.raises(ValueError, match=r"has no metric .* one of personal/test/acc"):
        report.evaluate(ours, "personal/test/auc")


@pytest.mark.parametrize(
    ("name", "seed", "data"),
    [("local", 0, "cd" * 32), ("fedavg", 0, "ab" * 32), ("local", 1, "ab" * 32)],
)
def test_a_baseline_of_other_clients_is_refused(make_run, tmp_path, name, seed, data):
    ours = make_run(tmp_path / "ours", "ditto")
    other = tmp_path / "other"
    make_run(other, name, seed)
    manifest = read_partition(other) | {"sha256": data}
    write_partition(other, manifest, {})
    with pytest.raises(ValueError, match="does not fit"):
        report.evaluate(ours, baseline=other)


def test_the_command_refuses_a_window_of_nothing(run_folder, tmp_path):
    code, _, said = tiny.main("report", run_folder, "--target-window", 0)
    expected = "expected a number of evaluations, at least 1"
    assert (code, said) == (2, f"pfljax: target window is 0; {expected}\n")


@pytest.mark.parametrize("target", ["0", "1.5", "nan"])
def test_the_command_refuses_what_is_no_accuracy(run_folder, tmp_path, target):
    out = tmp_path / "out"
    args = "report", run_folder, "--out", out, "--target", "0.5", target
    code, _, said = tiny.main(*args)
    assert (code, said.count("\n")) == (2, 1)
    assert "expected a value of accuracy above 0, at most 1, such as 0.8" in said
    assert not out.exists()


@pytest.mark.usefixtures("undrawn")
def test_a_target_that_is_asked_for_is_on_the_screen(make_run, tmp_path):
    """With two evaluations it went without a word."""
    two = with_curve(make_run(tmp_path / "two", "ditto", R=4, every=2), [0.4, 0.6])
    command = ("report", two, "--target", 0.5)
    code, shown, said = tiny.main(*command)
    assert code == 0, said
    assert re.search(r"Plain rounds to 50 % +4\.0", shown)
    assert "the mean of 3 successive evaluations" in " ".join(shown.split())
    assert not re.search(r"^Rounds to", shown, re.MULTILINE)
    _, shown, _ = tiny.main(*command, "--target-window", 1)
    assert re.search(r"^Rounds to 50 % +4\.0", shown, re.MULTILINE)
    assert "Plain rounds to" not in shown
