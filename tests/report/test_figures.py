import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import tiny
from pfljax.report import comparison, figures
from pfljax.report.groups import group_runs
from pfljax.report.runs import read_run
from pfljax.report.style import (
    PALETTE,
    line_styles,
    save_figure,
    seen_through,
    spread,
    told_once,
)
from pfljax.runtime.files import FileError


@pytest.fixture(scope="module")
def run(run_folder):
    return read_run(run_folder)


@pytest.fixture(scope="module")
def runs(comparison_folders):
    return [read_run(folder) for folder in comparison_folders]


def line_with(axes, x, y):
    """The one line of the axes with these points."""
    found = [
        line
        for line in axes.get_lines()
        if np.shape(line.get_xdata()) == np.shape(x)
        and np.allclose(line.get_xdata(), x)
        and np.allclose(line.get_ydata(), y, rtol=1e-5)
    ]
    assert len(found) == 1
    return found[0]


def band_edges(collection):
    """Lowest and highest y of a filled band at its first x."""
    points = collection.get_paths()[0].vertices
    first = points[np.isclose(points[:, 0], points[:, 0].min())]
    return first[:, 1].min(), first[:, 1].max()


def test_learning_curves_draw_means_and_percentiles(run):
    accuracy, loss = figures.learning_curves(run).axes
    rounds, values = run.per_client["round"], run.per_client["personal/test/accuracy"]
    line_with(accuracy, rounds, 100 * values.mean(1))
    line_with(accuracy, rounds, 100 * run.per_client["server/test/accuracy"].mean(1))
    line_with(loss, rounds, run.per_client["personal/test/loss"].mean(1))
    train = [(x["round"], x["train_loss"]) for x in run.rounds]
    line_with(loss, *np.transpose(train))
    expected = np.percentile(100 * values[0], [10, 90])
    np.testing.assert_allclose(band_edges(accuracy.collections[0]), expected, rtol=1e-5)
    assert accuracy.get_ylabel() == "test accuracy (%)"
    assert accuracy.get_xlabel() == loss.get_xlabel() == "round"


def test_histogram_counts_every_client(run):
    figure = figures.accuracy_histogram(run)
    filled = figure.axes[0].patches[0]
    heights = filled.get_xy()[:, 1]
    values = 100 * run.per_client["personal/test/accuracy"][-1]
    assert heights.max() == np.histogram(values, np.linspace(0, 100, 21))[0].max()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0] == f"personal, mean {values.mean():.1f}"


def test_dots_are_the_clients_sorted(run):
    axes = figures.accuracy_by_client(run).axes[0]
    last = {m: run.per_client[f"{m}/test/accuracy"][-1] for m in ("personal", "server")}
    order = np.argsort(last["personal"], kind="stable")
    for values in last.values():
        assert line_with(axes, np.arange(1, 21), 100 * values[order])


def test_quantiles_over_clients_are_means_over_seeds(runs):
    axes = comparison.comparison_clients(runs).axes[0]
    share = np.linspace(0, 100, 101)
    for algorithm, model in (("ditto", "personal"), ("fedavg", "server")):
        last = [
            100 * r.per_client[f"{model}/test/accuracy"][-1]
            for r in seeds_of(runs, algorithm)
        ]
        assert line_with(
            axes, share, np.mean([np.percentile(v, 100 - share) for v in last], 0)
        )


def test_bubbles_are_the_histogram(run):
    axes = figures.label_distribution(run).axes[0]
    counts = np.array(run.partition["class_histogram"])
    (discs,) = axes.collections
    client, label = np.transpose(discs.get_offsets()).astype(int)
    assert len(client) == np.count_nonzero(counts)
    areas = discs.get_sizes()
    np.testing.assert_allclose(
        areas / areas.max(), counts[client, label] / counts.max()
    )
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("client", "class")


def test_many_clients_are_a_heat_map(make_run, tmp_path):
    run = read_run(make_run(tmp_path / "run", "ditto", 0, C=120, K=40))
    axes = figures.label_distribution(run).axes[0]
    (image,) = axes.get_images()
    shown = np.ma.filled(image.get_array(), 0)
    np.testing.assert_array_equal(shown, np.transpose(run.partition["class_histogram"]))
    assert [bar.get_ylabel() for bar in axes.get_figure().axes[1:]] == ["rows"]


def test_lambda_curve_draws_the_grid(run):
    axes = figures.lambda_curve(run).axes[0]
    grid = run.per_client["mixture/lambda"]
    for split in ("test", "validation"):
        mean = 100 * run.per_client[f"mixture/{split}/accuracy"].mean(0)
        assert line_with(axes, grid, mean)
    level = 100 * run.summary["mixture"]["chosen_on_validation"]["accuracy"]["mean"]
    assert line_with(axes, [0, 1], [level, level])


def test_no_mixture_no_lambda_curve(runs):
    plain = next(run for run in runs if run.config["algorithm"] == "ditto")
    assert figures.lambda_curve(plain) is None


def test_one_line_where_personal_is_the_servers(runs):
    run = next(run for run in runs if run.config["algorithm"] == "fedavg")
    texts = [t.get_text() for t in figures.learning_curves(run).axes[0].texts]
    assert texts == ["server = personal"]


def seeds_of(runs, algorithm):
    return [run for run in runs if run.config["algorithm"] == algorithm]


def test_curves_by_round_are_means_over_seeds(runs):
    axes = comparison.comparison_curves(runs).axes[0]
    seeds = seeds_of(runs, "ditto")
    by_seed = [100 * r.per_client["personal/test/accuracy"].mean(1) for r in seeds]
    line_with(axes, seeds[0].per_client["round"], np.mean(by_seed, axis=0))
    std = np.std(by_seed, axis=0, ddof=1)
    edges = [band_edges(c) for c in axes.collections]
    expected = np.mean(by_seed, 0)[0] + std[0] * np.array([-1, 1])
    assert any(np.allclose(edge, expected, rtol=1e-5) for edge in edges)


def test_curves_by_bytes_count_both_ways(runs):
    axes = comparison.comparison_curves(runs, "bytes", log=True).axes[0]
    seeds = seeds_of(runs, "fedper")
    by_seed = [100 * r.per_client["personal/test/accuracy"].mean(1) for r in seeds]
    megabytes = 2 * 52_000 * seeds[0].per_client["round"] / 1e6
    line_with(axes, megabytes, np.mean(by_seed, axis=0))
    assert axes.get_xscale() == "log"
    local = seeds_of(runs, "local")
    level = np.mean([100 * r.per_client["personal/test/accuracy"][-1] for r in local])
    line_with(axes, [0, megabytes[-1]], [level, level])


def test_unknown_axis_is_named(runs):
    with pytest.raises(ValueError, match="by is 'time'; expected 'round', 'bytes' or"):
        comparison.comparison_curves(runs, "time")


def dots_of(axes):
    """(means, whose large dots they are; the dots of the seeds), from the bottom up."""
    large = [line for line in axes.get_lines() if line.get_markersize() == 8]
    seeds = [line for line in axes.get_lines() if line.get_markersize() == 3]
    means = [float(line.get_xdata()[0]) for line in large]
    assert [line.get_ydata()[0] for line in large] == list(range(len(large)))
    return means, [line.get_xdata() for line in seeds]


def test_final_means_are_sorted_dots_with_a_dot_a_seed(runs):
    left, right = comparison.comparison_bars(runs).axes
    groups = {group.label: group for group in group_runs(runs)}
    labels = [text.get_text() for text in left.get_yticklabels()]
    means, seeds = dots_of(left)
    spreads, _ = dots_of(right)
    assert means == sorted(means)
    for i, label in enumerate(labels):
        last = [
            100 * r.per_client["personal/test/accuracy"][-1].astype(float)
            for r in groups[label].runs
        ]
        of_seeds = [values.mean() for values in last]
        assert means[i] == pytest.approx(np.mean(of_seeds), rel=1e-5)
        np.testing.assert_allclose(seeds[i], of_seeds, rtol=1e-5)
        stds = [values.std() for values in last]
        assert spreads[i] == pytest.approx(np.mean(stds), rel=1e-5)


def test_the_axis_shows_what_lies_between_the_methods(make_run, tmp_path):
    """94 against 95: bars from 0 would look alike."""
    folders = [make_run(tmp_path / name, name, 0) for name in ("fedper", "ditto")]
    left, _ = comparison.comparison_bars(map(read_run, folders)).axes
    means, _ = dots_of(left)
    low, high = left.get_xlim()
    assert means[1] - means[0] > 0.8 * (high - low)
    assert low < means[0] < means[1] < high
    assert not left.patches


def test_equal_curves_are_drawn_once_and_name_both(make_run, tmp_path):
    runs = [
        read_run(make_run(tmp_path / f"{label}{seed}", "fedavg", seed, label=label))
        for label in ("FedAvg", "FedProx mu=0")
        for seed in (0, 1)
    ]
    runs.append(read_run(make_run(tmp_path / "ditto", "ditto", 0)))
    for draw in (comparison.comparison_curves, comparison.comparison_clients):
        (axes,) = draw(runs).axes
        texts = [" ".join(text.get_text().split()) for text in axes.texts]
        assert texts == ["FedAvg = FedProx mu=0", "ditto"]


def test_near_curves_are_two():
    curves = [np.array([50.0, 60]), np.array([50.0, 60.1]), np.array([50.0, 60])]
    told = told_once(["a", "b", "c"], curves)
    assert told == [(0, "a = c"), (1, "b")]


def test_a_curve_that_would_hide_another_is_dashed():
    curves = [np.array([50.0, 60, 70]), np.array([50.1, 60, 70]), np.array([9.0, 9, 9])]
    styles = [{"color": str(i)} for i in range(4)]
    curves.append(curves[0] + 0.1)
    dashed = seen_through(styles, curves)
    assert [style.get("linestyle") for style in dashed] == [
        None,
        (0, (4, 4)),
        None,
        (0, (4, 8)),
    ]
    assert [style["color"] for style in dashed] == ["0", "1", "2", "3"]
    lines = [np.array([0.0, 1.0]), np.array([0.0, 1.0, 2.0]), np.empty(0)]
    assert seen_through(styles[:3], lines) == styles[:3]


def test_a_hidden_dot_is_a_ring(run):
    axes = figures.accuracy_by_client(run).axes[0]
    first, second = (line for line in axes.get_lines() if line.get_marker() == "o")
    assert (first.get_fillstyle(), second.get_fillstyle()) == ("full", "none")
    assert second.get_markersize() > first.get_markersize() + 2


def test_a_method_keeps_its_colour(runs):
    groups = group_runs(runs)
    forth = comparison.group_styles(groups)
    back = comparison.group_styles(groups[::-1])[::-1]
    assert forth == back
    assert len({style["color"] for style in forth}) == len(groups)


def test_styles_never_repeat_within_28():
    styles = line_styles([str(i) for i in range(28)])
    assert len({(s["color"], s["linestyle"]) for s in styles}) == 28
    assert styles[0]["color"] == PALETTE[0]


def test_spread_keeps_order_and_distance():
    wanted, sizes = np.array([0.5, 0.51, 0.1, 0.99, 0.52]), np.full(5, 0.1)
    sizes[1] = 0.2
    places = spread(wanted, sizes)
    order = np.argsort(wanted)
    gaps = np.diff(places[order])
    needed = (sizes[order][1:] + sizes[order][:-1]) / 2
    assert (gaps >= needed - 1e-9).all()
    assert (places - sizes / 2 >= 0).all()
    assert (places + sizes / 2 <= 1 + 1e-9).all()
    assert places[2] == pytest.approx(0.1)  # nothing is near: it stays


def test_labels_are_never_parsed_as_mathematics(make_run, tmp_path):
    label = r"cost $\frac$ and_more"
    run = read_run(make_run(tmp_path / "run", "ditto", 0, label=label))
    for figure in (
        comparison.comparison_bars([run]),
        comparison.comparison_curves([run]),
    ):
        figure.savefig(tmp_path / "figure.png")  # raises where it is parsed
        assert label in {text.get_text() for text in figure.findobj(Text)}


def test_only_drawing_loads_matplotlib_and_nothing_loads_pyplot_or_jax(run_folder):
    code = (
        "import sys, pfljax.report as report; print('matplotlib' in sys.modules); "
        "from pfljax.report import figures; "
        "figures.lambda_curve(report.read_run(sys.argv[1])); "
        "heavy = ('matplotlib', 'matplotlib.pyplot', 'jax'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(run_folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["False", "['matplotlib']", ""], done.stderr


def test_a_figure_that_there_is_no_room_for_is_told(tmp_path):
    figure = Figure(figsize=(1, 1))
    # Every point is a mark of the PDF, and few pixels of the PNG.
    points = np.random.default_rng(0).random((2, 3_000))
    figure.subplots().plot(*points, ".")
    told = pytest.raises(FileError, match=r"large.pdf \(File too large\)")
    with told, tiny.files_of(30_000):
        save_figure(figure, tmp_path / "large")
    assert [path.name for path in tmp_path.iterdir()] == ["large.png"]
