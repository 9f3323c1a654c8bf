"""Figures of planes and lines show what they are given."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pfljax import landscape

AXIS = np.linspace(-1, 1, 5)


def draw_barriers(barriers):
    """The figure of barriers at three rounds."""
    series = {name: {"": np.c_[np.asarray(v, float)]} for name, v in barriers.items()}
    return landscape.draw_rounds([1, 2, 3], series, " to the last")


def plane(values, metric="loss", marks=()):
    return landscape.Plane(AXIS, AXIS, {metric: values}, dict(marks))


def test_the_figure_clips_what_is_high_and_shares_one_scale():
    bowl = AXIS[:, None] ** 2 + AXIS[None] ** 2 + 0.1
    far = np.where(bowl > 1, np.inf, 3 * bowl)
    planes = {
        name: plane(values, marks={name: (0, 0.5)}.items())
        for name, values in (("FedAvg", bowl), ("other", far))
    }
    figure = landscape.draw_planes(planes)
    panels = figure.axes[:2]
    assert [axes.get_title() for axes in panels] == ["FedAvg", "other"]
    fills = [axes.collections[0] for axes in panels]
    assert fills[0].levels.tolist() == fills[1].levels.tolist()
    assert fills[0].levels[0] == pytest.approx(0.1)
    # Levels are round, and an arrow shows that there are values beyond.
    assert {0.1, 0.2, 0.5, 1.0, 2.0} < set(fills[0].levels.round(9))
    assert fills[0].extend == "max"
    assert figure.axes[2].get_ylabel() == "loss"
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[0, 0.5]]
    assert {axes.get_aspect() for axes in panels} == {1.0}


def test_what_is_not_a_number_is_hatched_and_counted():
    bowl = AXIS[:, None] ** 2 + AXIS[None] ** 2 + 0.1
    bowl[0, 1:3] = np.nan
    figure = landscape.draw_planes({"a": plane(bowl)})
    axes = figure.axes[0]
    assert axes.patch.get_hatch()
    assert "2 of 25 not finite" in axes.texts[-1].get_text()
    assert axes.collections[0].extend == "neither"
    axes = landscape.draw_planes({"a": plane(np.nan_to_num(bowl, nan=1))}).axes[0]
    assert not axes.patch.get_hatch()


def test_levels_of_an_accuracy_are_even_and_round():
    values = 0.5 + 0.1 * AXIS[:, None] + 0.1 * AXIS
    figure = landscape.draw_planes({"a": plane(values, "accuracy")}, "accuracy")
    (fill, *_), bar = figure.axes[0].collections, figure.axes[1]
    assert (fill.levels[0], fill.levels[-1]) == (28, 72)
    np.testing.assert_allclose(np.diff(fill.levels), 4)
    assert bar.get_ylabel() == "accuracy (%)"
    even = landscape.draw_planes({"a": plane(0 * values, "accuracy")}, "accuracy")
    assert even.axes[0].collections[0].levels[0] == 0


def test_a_way_joins_its_models_and_names_do_not_overlap():
    marks = {str(i): (0.02 * i, 0.0) for i in range(9)}
    bowl = plane(AXIS**2 + AXIS[:, None] + 2, marks=marks.items())
    way = list(marks.values())
    axes = landscape.draw_planes({"a": bowl}, ways={"a": way}).axes[0]
    assert axes.lines[0].get_xydata().tolist() == [list(at) for at in way]
    # The last and the first; the others lie too near.
    assert [text.get_text() for text in axes.texts] == ["8", "0"]


@pytest.mark.parametrize("seed", range(4))
def test_a_name_lies_nearest_to_its_own_model(seed):
    places = np.random.default_rng(seed).uniform(-1.5, 1.5, (6, 2)).round(2)
    marks = {f"client {k}": tuple(at) for k, at in enumerate(places)}
    bowl = plane(AXIS**2 + AXIS[:, None] + 2, marks=marks)
    figure = landscape.draw_planes({"a": bowl})
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = figure.axes[0]
    dots = axes.transData.transform(places)
    texts = list(axes.texts)
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    assert len(texts) >= 4
    for text, box in zip(texts, boxes, strict=True):
        assert sum(box.overlaps(other) for other in boxes) == 1, text
        middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        nearest = np.linalg.norm(dots - middle, axis=1).argmin()
        assert text.get_text() == f"client {nearest}"


def test_names_of_models_are_read_on_bright_and_on_dark():
    marks = {"a": (0, 0), "b": (0.5, 1), "diverged": (np.nan, 1.0)}
    figure = landscape.draw_planes(
        {"all": plane(AXIS**2 + AXIS[:, None] + 2, marks=marks)}
    )
    texts = figure.axes[0].texts
    assert [text.get_text() for text in texts] == ["b", "a"]
    assert all(text.get_path_effects() for text in texts)


def test_what_cannot_be_drawn_is_one_line():
    nowhere = plane(np.full((5, 5), np.nan))
    for given, metric, said in (
        ({"a": nowhere}, "loss", "no loss on the planes is finite"),
        ({"a": nowhere}, "los", "metric 'los' is unknown; known: loss"),
    ):
        with pytest.raises(ValueError, match=said) as error:
            landscape.draw_planes(given, metric)
        assert "\n" not in str(error.value)
    figure = landscape.draw_planes({"a": nowhere, "b": plane(AXIS**2 + np.eye(5))})
    assert len(figure.axes) == 3


def test_a_barrier_of_0_lies_above_the_edge():
    for values in ([np.nan, 2, 0], [0.0, 0.0, 0.0]):
        figure = draw_barriers({"loss": values})
        low, high = figure.axes[0].get_ylim()
        assert low < -0.05 * high < 0
        assert figure.axes[0].lines[0].get_marker() == "o"


def test_colours_of_pairs_do_not_span_rounding():
    noise = np.full((3, 3), 2e-8)
    wall = np.where(np.eye(3), 0, 0.02)
    wall[0, 1] = np.nan
    figure = landscape.draw_matrices(
        {"loss barrier": noise, "accuracy barrier": wall, "cosine": 1 - noise},
        ids=[2, 5, 7],
    )
    loss, accuracy, cosine = (axes.images[0] for axes in figure.axes[:3])
    assert loss.get_clim() == (0, 0.001)
    assert accuracy.get_clim() == pytest.approx((0, 2))
    assert cosine.get_clim() == (0.99, 1)
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles[0] == "loss barrier\nat most 2e-08"
    assert titles[1] == "accuracy barrier (points)"
    assert figure.axes[1].patch.get_hatch()
    names = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert names == ["2", "5", "7"]


def test_no_text_is_cut():
    barriers = {"loss": [2, 1, 0], "accuracy": [0.2, 0.1, 0]}
    line = landscape.Line(AXIS[2:], {"accuracy": np.ones((4, 3)) * AXIS[2:]})
    matrix = np.full((40, 40), np.nan)
    names = ("loss barrier", "accuracy barrier", "cosine")
    bowl = AXIS[:, None] ** 2 + AXIS**2 + 1
    for figure in (
        draw_barriers(barriers),
        landscape.draw_matrices(dict.fromkeys(names, matrix)),
        landscape.draw_line(
            {"a": line}, ends=("the first of two models", "the second")
        ),
        landscape.draw_planes({"a": plane(np.where(bowl > 2, np.nan, bowl))}),
    ):
        assert not cut(figure)


def cut(figure):
    """The texts of a figure that reach beyond its edge."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = figure.bbox.size
    found = []
    for axes in figure.axes:
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts):
            box = text.get_window_extent(canvas.get_renderer())
            if (
                text.get_text()
                and min(box.x0, box.y0, width - box.x1, height - box.y1) < -1
            ):
                found.append(text.get_text())
    return found


def test_a_line_says_what_its_ends_are_and_draws_percent():
    line = landscape.Line(AXIS[2:], {"accuracy": AXIS[2:], "loss": AXIS[2:]})
    (axes,) = landscape.draw_line({"w to v": line}, ends=("w", "v")).axes
    assert axes.get_xlabel() == "t, from w (0) to v (1)"
    assert axes.get_ylabel() == "accuracy (%)"
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), 100 * AXIS[2:])
    (axes,) = landscape.draw_line({"w to v": line}, "loss").axes
    assert axes.get_xlabel() == "t, from one model (0) to the other (1)"
    assert axes.get_ylabel() == "loss"
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), AXIS[2:])


def test_equal_lines_are_drawn_once_and_name_both():
    line = landscape.Line(AXIS[2:], {"accuracy": AXIS[2:]})
    other = landscape.Line(AXIS[2:], {"accuracy": AXIS[2:] ** 2})
    lines = {"FedAvg": line, "FedProx": line, "Ditto": other}
    (axes,) = landscape.draw_line(lines).axes
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(texts) == ["Ditto", "FedAvg = FedProx"]


def test_more_than_three_lines_have_bars_and_no_bands():
    values = np.linspace(0, 1, 33).reshape(11, 3)
    lines = {
        str(i): landscape.Line(AXIS[2:], {"accuracy": values**i}) for i in range(1, 5)
    }
    (axes,) = landscape.draw_line(lines).axes
    medians = [100 * np.median(values**i, axis=0) for i in range(1, 5)]
    for drawn, median in zip(axes.lines, medians, strict=True):
        np.testing.assert_allclose(drawn.get_ydata(), median)
    kinds = {type(each).__name__ for each in axes.collections}
    assert kinds == {"LineCollection"}
    del lines["4"]
    (axes,) = landscape.draw_line(lines).axes
    assert len(axes.collections) == 3


def test_barriers_of_an_accuracy_are_points():
    barriers = {"accuracy": [0.2, 0.1, 0], "loss": [2, 1, 0]}
    shares, loss = draw_barriers(barriers).axes
    assert shares.get_title() == "accuracy barrier to the last (points)"
    np.testing.assert_allclose(shares.lines[0].get_ydata(), [20, 10, 0])
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [2, 1, 0])


def test_layers_are_drawn_in_the_order_of_their_calls():
    values = {
        "trace": {"body/layers_1": np.array([1.0, 3]), "head": np.array([5.0, 5])}
    }
    (axes,) = landscape.draw_layers(values).axes
    assert axes.lines[0].get_ydata().tolist() == [2, 5]
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert names == ["body/layers_1", "head"]
