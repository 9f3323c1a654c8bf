"""Reports lead with the run's metric, in its direction, from synthetic run folders."""

import json

import numpy as np
import pytest

from pfljax import report
from pfljax.report import overview, pairs
from pfljax.report.curves import group_curves, spent_table
from pfljax.report.lead import find_lead, read_lead
from pfljax.report.seeds import group_runs
from pfljax.report.tidy import main_means, tidy
from pfljax.runs.result import result

METHODS = ("local", "fedavg", "ditto")
SAME = ("p", "p_holm", "p_clients", "win", "tie", "lose")


def to_error(folder):
    """The run with an RMSE, of 1 - accuracy, as its only metric beside the loss."""
    with np.load(folder / "clients.npz") as file:
        arrays = dict(file)
    kept = {}
    for name, values in arrays.items():
        if name.endswith("/accuracy"):
            kept[name.replace("accuracy", "rmse")] = 1 - values
        elif name.count("/") < 2 or name.endswith("/loss"):
            kept[name] = values
    np.savez(folder / "clients.npz", **kept)

    def change(text):
        line = json.loads(text)
        lines = [line, line.get("last"), line.get("chosen_on_validation")]
        for evaluation in filter(None, lines):
            for record in evaluation.get("evaluations", ()):
                own = record["metrics"].pop("accuracy")
                error = {name: 1 - value for name, value in own.items()}
                error |= {"std": own["std"], "min": error["max"], "max": error["min"]}
                loss = record["metrics"].get("loss", error)
                record["metrics"] = {"rmse": error, "loss": loss}
        if "best_on_test" in line:
            line["best_on_test"] = {"round": 16, "rmse": 0.5}
        return json.dumps(line)

    for name in ("metrics.jsonl", "summary.json"):
        lines = (folder / name).read_text().splitlines()
        (folder / name).write_text("\n".join(map(change, lines)) + "\n")
    return folder


def write_runs(make_run, root, **more):
    return [
        make_run(root / f"{method}{seed}", method, seed, R=16, **more)
        for method in METHODS
        for seed in range(2)
    ]


def compared(folders):
    """(the tidy table, the comparisons in pairs, the overview)."""
    groups = group_runs(map(result, folders))
    frame = tidy(groups)
    means, lead = main_means(frame), read_lead(frame)
    scores = [pairs.make_scores(g, means[g.label], lead) for g in groups]
    rows, _ = pairs.compare(scores)
    best = rows[rows.with_best.eq(True)]
    return frame, rows, overview.average_seeds(frame, best)


@pytest.mark.parametrize(("metric", "factor"), [("rmse", 1), ("loss", 2.3)])
def test_an_error_is_compared_as_its_complement(make_run, tmp_path, metric, factor):
    """All numbers are those of the accuracy, times the factor, and none is mirrored."""
    expected_frame, expected, ranked = compared(write_runs(make_run, tmp_path / "a"))
    folders = write_runs(
        make_run, tmp_path / "b", monitor="loss" if metric == "loss" else "auto"
    )
    if metric == "rmse":
        folders = [*map(to_error, folders)]
    frame, rows, methods = compared(folders)
    assert list(methods.index) == list(ranked.index) == ["ditto", "local", "fedavg"]
    assert list(rows.against) == list(expected.against)
    for name in SAME:
        np.testing.assert_allclose(rows[name], expected[name], rtol=1e-3)
    for name in ("difference", "low", "high"):
        np.testing.assert_allclose(rows[name], factor * expected[name], rtol=1e-3)
    gains = methods.gain_local, factor * ranked.gain_local
    np.testing.assert_allclose(*gains, atol=1e-6)
    worse = methods.worse_than_local, ranked.worse_than_local
    np.testing.assert_allclose(*worse, atol=1e-6)
    costs = [
        spent_table(group_curves(table), [target]).iloc[:, :-2]
        for table, target in ((frame, factor * 0.3), (expected_frame, 0.7))
    ]
    np.testing.assert_allclose(*costs)


def test_the_screen_and_page_of_an_error(make_run, tmp_path):
    folders = [*map(to_error, write_runs(make_run, tmp_path / "runs"))]
    text = report.write_comparison(folders, tmp_path, with_tables=True)
    assert "ditto has the lowest mean RMSE, 0." in text
    assert " %." not in text.split("MB are")[0].replace("training, in %.", "")
    assert "ccuracy" not in (tmp_path / "comparison.md").read_text()
    assert "RMSE at the last round" in report.write_run_report(folders[0])
    got = report.evaluate(folders[4], baseline=folders[0], targets=[0.3])
    assert got["metric"] == "personal/test/rmse"
    assert got["figures"]["gain_local"] > 0


def test_runs_without_a_common_metric_are_refused(make_run, tmp_path):
    error = to_error(make_run(tmp_path / "error", "ditto"))
    classes = make_run(tmp_path / "classes", "ditto", seed=1)
    with pytest.raises(ValueError, match="accuracy and rmse; give runs of one kind"):
        find_lead([result(error), result(classes)])
