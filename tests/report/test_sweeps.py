"""The report of a sweep, from rows written by hand."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pfljax.evaluation.over_clients import FIGURES
from pfljax.report import pairs, sweeps, write_sweep_report
from pfljax.report.tables import values_by_seed
from pfljax.report.tidy import ORACLE
from pfljax.runtime.files import FileError

ACCURACY = {  # (mu, mixing) -> of seeds 0 and 1
    (0.0, "model"): (0.5, 0.7),
    (0.1, "model"): (0.8, 0.9),
    (0.0, "layer"): (0.4, 0.4),
    (0.1, "layer"): (0.3, 0.5),
}


def row(values, model, round_, mean, metric="accuracy", **more):
    what = {"round": round_, "clock": "", "evaluated": model, "clients": "all"}
    what |= {"lambda": "", "split": "test", "metric": metric}
    return values | what | dict.fromkeys(FIGURES, 0.1) | {"mean": mean} | more


@pytest.fixture
def rows():
    rows = []
    for (mu, mixing), means in ACCURACY.items():
        for seed, mean in zip((5, 7), means, strict=True):
            values = {"mu": mu, "mixing": mixing, "seed": seed}
            rows += [
                row(values, "personal", 5, 0.01),
                row(values, "personal", 10, mean),
                row(values, "personal", 10, 0.02, split="validation"),
                row(values, "server", 10, mean / 2),
                row(values, "personal", 10, 1.25, "loss"),
                row(values, "mixture", 10, 1.0, **{"lambda": "oracle"}),
                row(values, "mixture", 10, 0.03, **{"lambda": 0.3}),
            ]
    return rows


def test_points_with_means_over_seeds(rows):
    values = values_by_seed(sweeps.tidy(rows))
    models = set(values.index.get_level_values("model"))
    assert models == {"personal", "server", ORACLE}
    own = values.loc["mu=0.1 mixing=model"].loc["personal"]
    assert own.accuracy.to_dict() == {5: 0.8, 7: 0.9}
    assert own.loss.tolist() == [1.25, 1.25]
    text = sweeps.markdown(rows)
    assert "| mu=0.1 mixing=model | personal | **85.00 ± 7.07** |" in text
    assert "| mu=0.1 mixing=model | server | 42.50 ± 3.54 |" in text


def test_points_are_compared_by_seeds_alone(rows):
    table, refusals = pairs.compare(sweeps.make_scores(rows))
    assert refusals == []
    assert set(table.method) == {"mu=0.1 mixing=model"}
    np.testing.assert_allclose(table.difference, [0.25, 0.45, 0.45])
    by_seed = np.array([0.3, 0.2])
    assert table.p[0] == pytest.approx(stats.ttest_1samp(by_seed, 0).pvalue)
    assert table.p_clients.isna().all()


def test_methods_of_a_sweep_are_compared_with_local(rows):
    names = {"model": {0.0: "local", 0.1: "ditto"}, "layer": {0.0: "fedavg", 0.1: ""}}
    swept = []
    for row in rows:
        name = names[row["mixing"]][row["mu"]]
        rest = {k: v for k, v in row.items() if k not in ("mu", "mixing")}
        if name:
            swept.append({"algorithm": name} | rest)
    table, _ = pairs.compare(sweeps.make_scores(swept))
    got = list(zip(table.method, table.against, strict=True))
    assert got == [("ditto", "local"), ("ditto", "fedavg"), ("local", "fedavg")]


def test_a_sweep_over_seeds_alone(rows):
    one = [{k: v for k, v in r.items() if k not in ("mu", "mixing")} for r in rows[:14]]
    assert set(sweeps.tidy(one).method) == {"all seeds"}
    assert sweeps.figure(one) is None


def test_the_figure_has_a_line_for_each_of_the_rest(rows):
    (axes,) = sweeps.figure(rows).axes
    assert axes.get_xlabel() == "mu"
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0", "0.1"]
    drawn = [bar.lines[0].get_ydata() for bar in axes.containers]
    np.testing.assert_allclose(np.array(drawn, float), [[60, 85], [40, 40]])
    whiskers = axes.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(
        np.ptp([s[:, 1] for s in whiskers], 1), [28.28, 14.14], 1e-3
    )
    texts = axes.get_legend().get_texts()
    assert [t.get_text() for t in texts] == ["mixing=model", "mixing=layer"]
    (axes,) = sweeps.figure([r for r in rows if r["mixing"] == "model"]).axes
    (curve,) = axes.containers
    np.testing.assert_array_equal(curve.lines[0].get_xdata(), axes.get_xticks())


def test_unfinished_and_damaged_sweeps_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no run is finished"):
        sweeps.read(tmp_path)
    for text in ("", "lr,round\n", "lr,round,metric,mean\n0.1,one,accuracy,0.5\n"):
        (tmp_path / "sweep.csv").write_text(text)
        with pytest.raises(FileError, match=r"sweep\.csv is missing or damaged"):
            sweeps.read(tmp_path)


def test_each_run_has_a_last_round_of_its_own_and_its_seed(rows):
    longer = [r | {"round": 2 * r["round"]} for r in rows if r["mu"] == 0.1]
    mixed = [r for r in rows if r["mu"] == 0.0] + longer
    values = values_by_seed(sweeps.tidy(mixed))
    for point, seeds in values.groupby(level="method"):
        assert set(seeds["round"]) == {20 if "mu=0.1" in point else 10}
        assert set(seeds.index.get_level_values("seed")) == {5, 7}


def test_close_values_are_points_of_their_own(rows):
    near = [r | {"mu": 0.1234567 + r["mu"] * 1e-6} for r in rows]
    assert sweeps.tidy(near).method.nunique() == 4
    assert sweeps.value_text(None) == "None"
    assert sweeps.value_text("") == "None"  # as it is read
    assert sweeps.value_text(True) == "True"


def test_the_page_of_a_sweep(rows, tmp_path):
    pd.DataFrame(rows).to_csv(tmp_path / "sweep.csv", index=False)
    over = {"mu": [0.0, 0.1], "mixing": ["model", "layer"], "seed": [5, 7, 9]}
    experiment = {
        "format": 3,
        "algorithm": "superfed:mu=7.5",
        "dataset": "digits",
        "lr": 0.25,
    }
    about = json.dumps({"experiment": experiment, "over": over})
    (tmp_path / "sweep.json").write_text(about)
    text = write_sweep_report(tmp_path, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["sweep.html"]
    assert "8 of 12 runs are finished" in text
    lines = text.splitlines()
    assert "mu=0.1 mixing=model has the highest mean accuracy, 85.00 %." in text
    assert len(lines) < 30
    page = (tmp_path / "out" / "sweep.html").read_text("utf-8")
    assert '<th scope="row">mixing</th><td>model, layer</td>' in page
    assert '<th scope="row">lr</th><td>0.25</td>' in page
    assert '<th scope="row">mu</th><td>7.5</td>' not in page
