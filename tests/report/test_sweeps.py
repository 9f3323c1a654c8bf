"""The report of a sweep, from rows written by hand."""

import csv
import json

import numpy as np
import pytest

from pfljax.report import formats, sweep_pairs, sweeps, write_sweep_report
from pfljax.report.paired import paired
from pfljax.runtime.files import FileError

ACCURACY = {  # (mu, mixing) -> of seeds 0 and 1
    (0.0, "model"): (0.5, 0.7),
    (0.1, "model"): (0.8, 0.9),
    (0.0, "layer"): (0.4, 0.4),
    (0.1, "layer"): (0.3, 0.5),
}


def row(values, model, round_, mean, metric="accuracy", **more):
    told = {"round": round_, "judged": model, "lambda": "", "split": "test"}
    figures = {"mean": mean, "std": 0.1, "weighted": mean, "worst10": 0.2}
    return values | told | {"metric": metric} | figures | more


@pytest.fixture
def rows():
    found = []
    for (mu, mixing), means in ACCURACY.items():
        for seed, mean in zip((5, 7), means, strict=True):
            values = {"mu": mu, "mixing": mixing, "seed": seed}
            found += [
                row(values, "personal", 5, 0.01),
                row(values, "personal", 10, mean),
                row(values, "personal", 10, 0.02, split="validation"),
                row(values, "server", 10, mean / 2),
                row(values, "personal", 10, 1.25, "loss"),
                row(values, "mixture", 10, 1.0, **{"lambda": "oracle"}),
                row(values, "mixture", 10, 0.03, **{"lambda": 0.3}),
            ]
    return found


def test_points_with_means_and_spread_over_seeds(rows):
    table = sweeps.table(rows)
    # Personal and server of each point; the oracle is the same at every point.
    assert len(table.rows) == 4 * 2 + 1
    lines = formats.markdown(table).splitlines()
    # Of two seeds all that they can tell is that one is not much behind.
    assert lines[2].startswith("| mu=0 mixing=model | personal | **60.00 ± 14.14** | ")
    assert "| mu=0.1 mixing=model | server | **42.50 ± 3.54** |" in "\n".join(lines)
    (oracle, *_) = [r for r in table.rows if r.judged.startswith("oracle")]
    assert (oracle.ranked, oracle.method) == (False, "every point")
    assert "**85.00 ± 7.07**" in "\n".join(lines)  # the best that a user can reach
    assert table.rows[0].values["loss"].tolist() == [1.25, 1.25]


def test_points_are_compared_by_seeds_alone(rows):
    result = paired([sweeps.table(rows)])
    assert [(c.method, c.against) for c in result.comparisons] == [
        ("mu=0.1 mixing=model", "mu=0 mixing=model"),
        ("mu=0.1 mixing=model", "mu=0 mixing=layer"),
        ("mu=0.1 mixing=model", "mu=0.1 mixing=layer"),
    ]
    differences = [c.values["difference"] for c in result.comparisons]
    np.testing.assert_allclose(differences, [0.25, 0.45, 0.45])
    assert "Clients are not known: the seeds alone are compared." in result.note
    assert {"win", "p_clients"}.isdisjoint(c.key for c in result.table.columns)
    assert (
        "45.0 points [-18.5, 108.5], p = .21 after Holm, two seeds." in result.lines[2]
    )


def test_a_sweep_says_how_to_compare_with_local(rows):
    key = sweep_pairs.in_pairs(rows, "superfed").key
    assert "`pfljax compare superfed:mu=VALUE,mixing=VALUE`" in key
    of_rates = [{k: v for k, v in r.items() if k not in ("mu", "mixing")} for r in rows]
    faster = [{"lr": 0.1} | row for row in of_rates]
    key = sweep_pairs.in_pairs(faster, "ditto").key
    assert "`pfljax compare ditto --lr VALUE`" in key
    assert "`--over algorithm local fedavg:finetune=20 ditto`" in key


def test_methods_of_a_sweep_are_held_against_local(rows):
    names = {"model": {0.0: "local", 0.1: "ditto"}, "layer": {0.0: "fedavg", 0.1: ""}}
    swept = []
    for row in rows:
        name = names[row["mixing"]][row["mu"]]
        rest = {k: v for k, v in row.items() if k not in ("mu", "mixing")}
        if name:
            swept.append({"algorithm": name} | rest)
    compared = sweep_pairs.in_pairs(swept, "ditto")
    pairs = [(c.method, c.against) for c in compared.comparisons]
    assert pairs == [
        ("ditto", "local"),
        ("ditto", "fedavg"),
        ("local", "fedavg"),
    ]
    assert "no points of this sweep" not in compared.key


def test_points_of_other_problems_are_not_compared(rows):
    swept = [{"partition": row["mixing"]} | row for row in rows]
    table = sweeps.table(swept)
    assert "The points differ in partition" in table.caption
    assert paired([table]).lines == ()


def test_a_sweep_over_seeds_alone(rows):
    one = [{k: v for k, v in r.items() if k not in ("mu", "mixing")} for r in rows[:14]]
    assert {r.method for r in sweeps.table(one).rows} == {"all seeds"}
    assert sweeps.figure(one) is None


def test_a_line_for_each_of_the_rest(rows):
    figure = sweeps.figure(rows)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "mu"
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0", "0.1"]
    drawn = [bar.lines[0].get_ydata() for bar in axes.containers]
    np.testing.assert_allclose(drawn, [[60, 85], [40, 40]])
    whiskers = axes.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(
        np.ptp([s[:, 1] for s in whiskers], 1), [28.28, 14.14], 1e-3
    )
    assert {"mixing=model", "mixing=layer"} <= {t.get_text() for t in axes.texts}


def test_unfinished_and_damaged_sweeps_are_told(tmp_path):
    with pytest.raises(ValueError, match="no run is finished; its command goes on"):
        sweeps.read(tmp_path)
    for text in ("", "lr,round\n", "lr,round,metric,mean\n0.1,one,accuracy,0.5\n"):
        (tmp_path / "sweep.csv").write_text(text)
        with pytest.raises(FileError, match=r"sweep\.csv is missing or damaged"):
            sweeps.read(tmp_path)


def test_each_run_has_a_last_round_of_its_own_and_its_seed(rows):
    longer = [r | {"round": 2 * r["round"]} for r in rows if r["mu"] == 0.1]
    mixed = [r for r in rows if r["mu"] == 0.0] + longer
    table = sweeps.table(mixed)
    assert {row.rounds for row in table.rows} == {(10, 10), (20, 20)}
    assert {row.seeds for row in table.rows} == {(5, 7)}
    assert len(sweeps.figure(mixed).axes[0].containers) == 2


def test_close_values_are_points_of_their_own(rows):
    near = [r | {"mu": 0.1234567 + r["mu"] * 1e-6} for r in rows]
    own = [row for row in sweeps.table(near).rows if row.judged == "personal"]
    assert len({row.method for row in own}) == 4
    assert sweeps.value_text(None) == "None"
    assert sweeps.value_text("") == "None"  # as it is read
    assert sweeps.value_text(True) == "True"


def test_a_lone_curve_stands_over_its_ticks(rows):
    (axes,) = sweeps.figure([r for r in rows if r["mixing"] == "model"]).axes
    (curve,) = axes.containers
    np.testing.assert_array_equal(curve.lines[0].get_xdata(), axes.get_xticks())


def test_curves_beside_one_another_stand_around_the_ticks(rows):
    (axes,) = sweeps.figure(rows).axes
    x = [curve.lines[0].get_xdata() for curve in axes.containers]
    np.testing.assert_allclose(np.mean(x, axis=0), axes.get_xticks())
    assert (x[0] < x[1]).all()


def test_equal_curves_and_equal_models_are_told_once(rows):
    alike = [r | {"mixing": mixing} for r in rows[:28] for mixing in ("a", "b")]
    (axes,) = sweeps.figure(alike).axes
    assert len(axes.containers) == 1
    shared = [r for r in rows if r["judged"] == "personal"]
    shared += [r | {"judged": "server"} for r in shared]
    judged = {row.judged for row in sweeps.table(shared).rows}
    assert judged == {"personal = server"}


def test_equal_numbers_of_some_points_are_told_once(rows):
    equal = {"mean": 0.5, "weighted": 0.5}
    shared = [r | equal if r["judged"] == "server" else r for r in rows]
    only = [r for r in shared if r["mixing"] == "model" or r["judged"] != "server"]
    told = [r.method for r in sweeps.table(only).rows if r.judged == "server"]
    assert told == ["mu=0 mixing=model, mu=0.1 mixing=model"]


def write_sweep(folder, rows, experiment):
    """The files of a sweep folder."""
    with open(folder / "sweep.csv", "w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    over = {"mu": [0.0, 0.1], "mixing": ["model", "layer"], "seed": [5, 7]}
    about = json.dumps({"experiment": experiment, "over": over})
    (folder / "sweep.json").write_text(about)


def test_the_page_has_the_best_point_and_what_was_swept(rows, tmp_path):
    experiment = {
        "format": 2,
        "algorithm": "superfed:mu=7.5",
        "dataset": "digits",
        "lr": 0.25,
    }
    write_sweep(tmp_path, rows, experiment)
    write_sweep_report(tmp_path, tmp_path / "out")
    page = (tmp_path / "out" / "sweep.html").read_text("utf-8")
    assert '<dd class="value">85.00 ± 7.07</dd>' in page
    told = "mu=0.1 mixing=model: personal; 7 more cannot be told from it"
    assert f'<dd class="note">{told}</dd>' in page
    assert (tmp_path / "out" / "comparison_paired.csv").exists()
    assert "<td>mixing</td><td>model, layer</td>" in page
    assert '<th scope="row">lr</th><td>0.25</td>' in page
    assert '<th scope="row">mu</th>' not in page  # no run has that value of its own
