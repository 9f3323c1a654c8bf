"""What the figures draw, and how they are saved."""

import subprocess
import sys

import numpy as np
import pytest

from pfljax.report import comparison_figures, figures, pairs
from pfljax.report.frames import make_frame
from pfljax.report.groups import group_runs
from pfljax.report.runs import read_run
from pfljax.report.style import (
    PALETTE,
    draw,
    line_styles,
    merge_equal,
    spread,
)


@pytest.fixture(scope="module")
def run(run_folder):
    return read_run(run_folder)


@pytest.fixture(scope="module")
def runs(comparison_folders):
    return [read_run(folder) for folder in comparison_folders]


def xy(line):
    return np.array(line.get_data())


def curve_of(axes, colour):
    """The first line of a colour that has a point for each evaluation."""
    return next(line for line in axes.lines if line.get_color() == colour)


def test_learning_curves_draw_means_and_percentiles(run):
    accuracy, loss = figures.learning_curves(run).axes
    values = 100 * run.per_client["personal/test/accuracy"]
    x, y = xy(curve_of(accuracy, PALETTE[0]))
    np.testing.assert_array_equal(x, run.per_client["round"])
    np.testing.assert_allclose(y, values.mean(1), rtol=1e-5)
    band = accuracy.collections[0].get_paths()[0].vertices[:, 1]
    low, high = np.percentile(values, [10, 90], axis=1)
    assert band.min() == pytest.approx(low.min(), rel=1e-5)
    assert band.max() == pytest.approx(high.max(), rel=1e-5)
    training = [line["train_loss"] for line in run.rounds]
    drawn = [xy(line)[1] for line in loss.lines]
    assert any(len(y) == 40 and np.allclose(y, training) for y in drawn)


def test_dots_are_the_clients_sorted(run):
    (axes,) = figures.accuracy_by_client(run).axes
    last = 100 * run.per_client["personal/test/accuracy"][-1]
    np.testing.assert_allclose(xy(axes.lines[0])[1], np.sort(last), rtol=1e-5)
    order = np.argsort(last, kind="stable")
    server = 100 * run.per_client["server/test/accuracy"][-1]
    np.testing.assert_allclose(xy(axes.lines[1])[1], server[order], rtol=1e-5)


def test_discs_and_heat_maps_are_the_histogram(run, make_run, tmp_path):
    (axes,) = figures.label_distribution(run).axes
    counts = np.asarray(run.partition["class_histogram"])
    client, label = axes.collections[0].get_offsets().T.astype(int)
    sizes = axes.collections[0].get_sizes()
    shown = np.zeros(counts.shape)
    shown[client, label] = sizes
    np.testing.assert_allclose(shown / shown.max(), counts / counts.max())
    many = read_run(make_run(tmp_path / "many", "ditto", C=60))
    axes, _ = figures.label_distribution(many).axes
    image = axes.images[0].get_array().filled(0)
    counts = np.asarray(many.partition["class_histogram"]).T
    np.testing.assert_array_equal(np.nan_to_num(image), counts)


def test_lambda_curve_draws_the_grid(run, runs):
    (axes,) = figures.lambda_curve(run).axes
    x, y = xy(axes.lines[0])
    np.testing.assert_allclose(x, np.linspace(0, 1, 11), atol=1e-6)
    expected = 100 * run.per_client["mixture/test/accuracy"].mean(0)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    chosen = run.summary["mixture"]["chosen_on_validation"]["accuracy"]["mean"]
    levels = [xy(line)[1][0] for line in axes.lines]
    assert pytest.approx(100 * chosen) in levels
    assert figures.lambda_curve(runs[3]) is None


def timed(run):
    """A run with a clock of half a second a round, and turns in the first three."""
    lines = []
    for line in run.rounds:
        start = 0.5 * (line["round"] - 1)
        line = line | {"clock": start + 0.5}
        if line["round"] <= 3:
            turns = [[4, start, start + 0.2, True], [7, start, start + 0.5, False]]
            line["turns"] = turns
        lines.append(line)
    return run._replace(rounds=lines)


def test_virtual_seconds_are_drawn(run):
    (axes,) = figures.accuracy_by_seconds(timed(run)).axes
    x, y = xy(axes.lines[0])
    np.testing.assert_allclose(x, 0.5 * run.per_client["round"])
    mean = 100 * run.per_client["personal/test/accuracy"].mean(1)
    np.testing.assert_allclose(y, mean, rtol=1e-5)
    (axes,) = comparison_figures.comparison_curves([timed(run)], "seconds").axes
    np.testing.assert_allclose(xy(axes.lines[0])[0], x)
    assert figures.accuracy_by_seconds(run) is None


def test_the_timeline_has_a_bar_for_each_turn(run):
    (axes,) = figures.timeline(timed(run)).axes
    bars = sorted((bar.get_x(), bar.get_width()) for bar in axes.patches)
    expected = sorted((0.5 * r, w) for r in range(3) for w in (0.2, 0.5))
    np.testing.assert_allclose(bars, expected)
    colours = {bar.get_width() > 0.3: bar.get_facecolor() for bar in axes.patches}
    assert colours[True] != colours[False]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["4", "7"]
    assert figures.timeline(run) is None


def test_quantities_of_clients_are_drawn_by_their_size(run):
    size = run.per_client["train_size"].astype(float)
    tau = np.stack([np.zeros_like(size), size**2 / 1000])
    told = run._replace(per_client=run.per_client | {"client/tau": tau})
    [axes] = figures.quantities_by_size(told).axes
    np.testing.assert_allclose(xy(axes.lines[0]), [size, size**2 / 1000], rtol=1e-5)
    assert axes.get_title() == "tau\nrank correlation 1.00"
    assert figures.quantities_by_size(run) is None
    assert figures.correlation_text(np.ones(20), np.arange(20)) == ""


def test_curves_are_means_over_seeds(runs):
    groups = group_runs(runs)
    styles = comparison_figures.method_styles([g.label for g in groups], "local only")
    colours = {g.label: s["color"] for g, s in zip(groups, styles, strict=True)}
    ditto = [run for run in runs if run.config["algorithm"] == "ditto"]
    means = [100 * run.per_client["personal/test/accuracy"].mean(1) for run in ditto]
    (axes,) = comparison_figures.comparison_curves(runs).axes
    x, y = xy(curve_of(axes, colours["ditto"]))
    np.testing.assert_array_equal(x, ditto[0].per_client["round"])
    np.testing.assert_allclose(y, np.mean(means, axis=0), rtol=1e-5)
    (axes,) = comparison_figures.comparison_curves(runs, "bytes").axes
    x, _ = xy(curve_of(axes, colours["ditto"]))
    np.testing.assert_allclose(x, 2 * 52_000e-6 * ditto[0].per_client["round"])


def test_quantiles_over_clients_are_means_over_seeds(runs):
    ditto = [run for run in runs if run.config["algorithm"] == "ditto"]
    (axes,) = comparison_figures.accuracy_over_clients(group_runs(ditto)).axes
    last = [100 * run.per_client["personal/test/accuracy"][-1] for run in ditto]
    expected = np.percentile(last, np.linspace(100, 0, 101), axis=1).mean(1)
    np.testing.assert_allclose(xy(axes.lines[0])[1], expected, rtol=1e-5)


def test_differences_to_the_best_with_their_intervals():
    row = dict.fromkeys(pairs.COLUMNS) | {"method": "a", "with_best": True}
    rows = [
        row
        | {"against": "b", "difference": 0.1, "low": 0.05, "high": 0.15, "p_holm": 0},
        row
        | {"against": "c", "difference": 0.2, "low": -0.1, "high": 0.5, "p_holm": 1},
    ]
    (axes,) = comparison_figures.differences(make_frame(rows)).axes
    intervals = [xy(line)[0] for line in axes.lines[:4:2]]
    np.testing.assert_allclose(intervals, [[-15, -5], [-50, 10]])
    sure, unsure = axes.lines[1:4:2]
    assert sure.get_markerfacecolor() != unsure.get_markerfacecolor() == "white"
    assert xy(sure)[0] == pytest.approx(-10)
    assert comparison_figures.differences(make_frame([], pairs.COLUMNS)) is None


def test_equal_curves_are_one():
    a, b = np.arange(3.0), np.arange(3.0) + 1
    assert merge_equal(["a", "b", "c"], [a, b, a]) == [(0, "a = c"), (1, "b")]


def test_a_method_keeps_its_colour():
    styles = comparison_figures.method_styles
    assert styles(["a", "b", "c"], "c")[0] == styles(["b", "a"], None)[1]
    seen = {(s["color"], s["linestyle"]) for s in line_styles([*map(str, range(28))])}
    assert len(seen) == 28


def test_spread_keeps_order_and_distance():
    wanted = np.array([0.5, 0.52, 0.1, 0.51])
    sizes = np.array([0.1, 0.2, 0.1, 0.1])
    centres = spread(wanted, sizes)
    order = np.argsort(wanted)
    assert (np.argsort(centres) == order).all()
    gaps = np.diff(centres[order])
    needed = (sizes[order][1:] + sizes[order][:-1]) / 2
    assert (gaps >= needed - 1e-9).all()
    assert centres[2] == pytest.approx(0.1)


def test_labels_are_never_parsed_as_mathematics(make_run, tmp_path):
    runs = [
        read_run(make_run(tmp_path / str(i), "ditto", R=8, lr=i, label="a_{$b^"))
        for i in (1, 2)
    ]
    draw(comparison_figures.comparison_curves(runs), "svg")


def test_equal_figures_give_equal_bytes(run):
    images = [draw(figures.learning_curves(run), "svg") for _ in range(2)]
    assert images[0] == images[1]


def test_only_drawing_loads_matplotlib_and_nothing_loads_pyplot_or_jax(run_folder):
    code = (
        "import sys, pfljax.report as report; print('matplotlib' in sys.modules); "
        "print('pandas' in sys.modules); from pfljax.report import figures; "
        f"figures.learning_curves(report.read_run({str(run_folder)!r})); "
        "print('matplotlib.pyplot' in sys.modules, 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False"] * 4, done.stderr
