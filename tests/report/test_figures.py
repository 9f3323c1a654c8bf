"""The contents of the figures, and how they are saved."""

import copy
import subprocess
import sys

import numpy as np
import pytest

from pfljax.report import comparison_figures, figures, pairs, quantities, style
from pfljax.report.frames import make_frame
from pfljax.report.lead import make_lead
from pfljax.report.run_page import client_columns
from pfljax.report.seeds import group_runs
from pfljax.report.style import GREY, PALETTE, draw, line_styles, merge_equal
from pfljax.runs.result import result

LEAD = make_lead("accuracy")


@pytest.fixture(scope="module")
def run(run_folder):
    return result(run_folder)


@pytest.fixture(scope="module")
def runs(comparison_folders):
    return [result(folder) for folder in comparison_folders]


def xy(line):
    return np.array(line.get_data())


def curve_of(axes, colour):
    """The first line of a colour that has a point for each evaluation."""
    return next(line for line in axes.lines if line.get_color() == colour)


def test_learning_curves_draw_means_and_percentiles(run):
    accuracy, loss = figures.learning_curves(run).axes
    values = 100 * run.clients["personal/test/accuracy"]
    x, y = xy(curve_of(accuracy, PALETTE[0]))
    np.testing.assert_array_equal(x, run.clients["round"])
    np.testing.assert_allclose(y, values.mean(1), rtol=1e-5)
    band = accuracy.collections[0].get_paths()[0].vertices[:, 1]
    low, high = np.percentile(values, [10, 90], axis=1)
    assert band.min() == pytest.approx(low.min(), rel=1e-5)
    assert band.max() == pytest.approx(high.max(), rel=1e-5)
    training = [line["train_loss"] for line in run.metrics]
    drawn = [xy(line)[1] for line in loss.lines]
    assert any(len(y) == 40 and np.allclose(y, training) for y in drawn)


def test_dots_are_the_clients_sorted(run):
    (axes,) = figures.accuracy_by_client(run).axes
    last = 100 * run.clients["personal/test/accuracy"][-1]
    np.testing.assert_allclose(xy(axes.lines[0])[1], np.sort(last), rtol=1e-5)
    order = np.argsort(last, kind="stable")
    server = 100 * run.clients["server/test/accuracy"][-1]
    np.testing.assert_allclose(xy(axes.lines[1])[1], server[order], rtol=1e-5)


def test_the_label_distribution_is_the_histogram(run):
    axes, _ = figures.label_distribution(run).axes
    image = axes.images[0].get_array().filled(0)
    counts = np.asarray(run.partition["class_histogram"]).T
    np.testing.assert_array_equal(np.nan_to_num(image), counts)


def test_clients_and_classes_have_their_names(run):
    names = [f"user{k}" for k in range(19)] + ["$" * 30]
    classes = {"class_names": list("abcdefghij")}
    named = timed(
        with_files(run, partition=run.partition | {"client_names": names} | classes)
    )
    axes, _ = figures.label_distribution(named).axes
    assert texts(axes.xaxis) == [*names[:19], "$" * 23 + "…"]
    assert texts(axes.yaxis) == [*"abcdefghij"]
    (axes,) = figures.timeline(named).axes
    assert texts(axes.yaxis) == ["user4", "user7"]
    assert client_columns(named)["Client"] == names


def texts(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def test_lambda_curve_draws_the_grid(run, runs):
    (axes,) = figures.lambda_curve(run).axes
    x, y = xy(axes.lines[0])
    np.testing.assert_allclose(x, np.linspace(0, 1, 11), atol=1e-6)
    expected = 100 * run.clients["mixture/test/accuracy"].mean(0)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    chosen = run.summary["mixture"]["chosen_on_validation"]["accuracy"]["mean"]
    levels = [xy(line)[1][0] for line in axes.lines]
    assert pytest.approx(100 * chosen) in levels
    assert figures.lambda_curve(runs[3]) is None


def timed(run):
    """A run with a clock of half a second a round, and turns in the first three."""
    lines = []
    for line in run.metrics:
        start = 0.5 * (line["round"] - 1)
        line = line | {"clock": start + 0.5}
        if line["round"] <= 3:
            turns = [[4, start, start + 0.2, True], [7, start, start + 0.5, False]]
            line["turns"] = turns
        lines.append(line)
    return with_files(run, metrics=lines)


def with_files(run, **content):
    """The run with other content of its files."""
    changed = copy.copy(run)
    vars(changed).update(content)
    return changed


def test_virtual_seconds_are_drawn(run):
    (axes,) = figures.accuracy_by_seconds(timed(run)).axes
    x, y = xy(axes.lines[0])
    np.testing.assert_allclose(x, 0.5 * run.clients["round"])
    mean = 100 * run.clients["personal/test/accuracy"].mean(1)
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
    assert texts(axes.yaxis) == ["4", "7"]
    assert figures.timeline(run) is None


def test_quantities_of_clients_are_drawn_by_their_size(run):
    size = run.clients["train_size"].astype(float)
    tau = np.stack([np.zeros_like(size), size**2 / 1000])
    # A name that is no formula of matplotlib's.
    reporting = with_files(run, clients=run.clients | {r"client/$\my$": tau})
    figure = quantities.quantities_by_size(reporting)
    [axes] = figure.axes
    np.testing.assert_allclose(xy(axes.lines[0]), [size, size**2 / 1000], rtol=1e-5)
    assert axes.get_title() == "$\\my$\nrank correlation 1.00"
    assert style.draw(figure, "svg")
    # Nor does a name take the place of a column of the page.
    named = run.clients | {"client/Client": tau}
    columns = client_columns(with_files(run, clients=named))
    assert list(columns) == [*client_columns(run), "client/Client"]
    assert quantities.quantities_by_size(run) is None
    assert quantities.correlation_text(np.ones(20), np.arange(20)) == ""


def test_curves_are_means_over_seeds(runs):
    groups = group_runs(runs)
    colour = comparison_figures.method_styles(groups)["ditto"]["color"]
    ditto = [run for run in runs if run.experiment.algorithm.name == "ditto"]
    means = [100 * run.clients["personal/test/accuracy"].mean(1) for run in ditto]
    (axes,) = comparison_figures.comparison_curves(runs).axes
    x, y = xy(curve_of(axes, colour))
    np.testing.assert_array_equal(x, ditto[0].clients["round"])
    np.testing.assert_allclose(y, np.mean(means, axis=0), rtol=1e-5)
    (axes,) = comparison_figures.comparison_curves(runs, "bytes").axes
    x, _ = xy(curve_of(axes, colour))
    np.testing.assert_allclose(x, 2 * 52_000e-6 * ditto[0].clients["round"])


def test_quantiles_over_clients_are_means_over_seeds(runs):
    ditto = [run for run in runs if run.experiment.algorithm.name == "ditto"]
    (axes,) = comparison_figures.metric_over_clients(group_runs(ditto), LEAD).axes
    last = [100 * run.clients["personal/test/accuracy"][-1] for run in ditto]
    expected = np.percentile(last, np.linspace(100, 0, 101), axis=1).mean(1)
    np.testing.assert_allclose(xy(axes.lines[0])[1], expected, rtol=1e-5)


def test_differences_to_the_best_with_their_intervals():
    row = dict.fromkeys(pairs.compare([])[0]) | {"method": "a", "with_best": True}
    rows = [
        row
        | {"against": "b", "difference": 0.1, "low": 0.05, "high": 0.15, "p_holm": 0},
        row
        | {"against": "c", "difference": 0.2, "low": -0.1, "high": 0.5, "p_holm": 1},
    ]
    (axes,) = comparison_figures.differences(make_frame(rows), LEAD).axes
    intervals = [xy(line)[0] for line in axes.lines[:4:2]]
    np.testing.assert_allclose(intervals, [[-15, -5], [-50, 10]])
    sure, unsure = axes.lines[1:4:2]
    assert sure.get_markerfacecolor() != unsure.get_markerfacecolor() == "white"
    assert xy(sure)[0] == pytest.approx(-10)
    assert comparison_figures.differences(pairs.compare([])[0], LEAD) is None


def test_equal_curves_are_one():
    a, b = np.arange(3.0), np.arange(3.0) + 1
    assert merge_equal({"a": a, "b": b, "c": a}) == {"a": "a = c", "b": "b"}


def test_a_method_keeps_its_colour(runs):
    styles = comparison_figures.method_styles(group_runs(runs))
    assert comparison_figures.method_styles(group_runs(runs[::-1])) == styles
    assert styles["local only"]["color"] == GREY
    styles = line_styles(map(str, range(28)))
    seen = {(s["color"], s["linestyle"]) for s in styles.values()}
    assert len(seen) == 28


def test_legends_show_labels_as_they_are_from_the_highest_end_downwards(
    make_run, tmp_path
):
    labels = {"ditto": "a_{$b^", "local": "$x$"}
    runs = [
        result(make_run(tmp_path / name, name, R=8, label=label))
        for name, label in labels.items()
    ]
    figure = comparison_figures.comparison_curves(runs[::-1])
    texts = figure.axes[0].get_legend().get_texts()
    assert [text.get_text() for text in texts] == list(labels.values())
    assert not any(text.get_parse_math() for text in texts)
    draw(figure, "svg")  # mathematics that does not close would be an error


def test_equal_figures_give_equal_bytes(run):
    images = [draw(figures.learning_curves(run), "svg") for _ in range(2)]
    assert images[0] == images[1]


def test_only_drawing_loads_matplotlib_and_nothing_loads_pyplot_or_jax(run_folder):
    code = (
        "import sys, pfljax.report as report; print('matplotlib' in sys.modules); "
        "print('pandas' in sys.modules); from pfljax.report import figures; "
        "from pfljax.runs.result import result; "
        f"figures.learning_curves(result({str(run_folder)!r})); "
        "print('matplotlib.pyplot' in sys.modules, 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False"] * 4, done.stderr
