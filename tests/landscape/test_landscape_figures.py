"""Figures of planes and lines show what they are given."""

import numpy as np
import pytest

from pfljax import landscape
from pfljax.landscape import figures

AXIS = np.linspace(-1, 1, 5)


def plane(values, metric="loss", marks=()):
    return landscape.Plane(AXIS, AXIS, {metric: values}, dict(marks))


def test_the_figure_clips_what_diverged_and_shares_one_scale():
    axis = np.linspace(-1, 1, 5)
    bowl = axis[:, None] ** 2 + axis[None] ** 2 + 0.1
    far = np.where(bowl > 1, np.nan, 3 * bowl)
    planes = {
        name: landscape.Plane(axis, axis, {"loss": values}, {name: (0, 0.5)})
        for name, values in (("FedAvg", bowl), ("other", far))
    }
    figure = landscape.draw_planes(planes)
    panels = figure.axes[:2]
    assert [axes.get_title() for axes in panels] == ["FedAvg", "other"]
    fills = [axes.collections[0] for axes in panels]
    assert fills[0].get_clim() == fills[1].get_clim()
    assert fills[0].get_clim()[0] == pytest.approx(0.1)
    assert figure.axes[2].get_ylabel() == "loss"
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[0, 0.5]]
    assert [axes.get_xlabel() for axes in panels] == ["alpha", "alpha"]
    assert panels[0].get_ylabel() == "beta"


def test_a_surface_is_cut_at_its_ceiling(monkeypatch):
    monkeypatch.setattr(figures, "CEILING", 1.5)
    axis = np.linspace(-1, 1, 5)
    bowl = axis[:, None] ** 2 + axis**2
    bowl[0, 0] = np.nan
    plane = landscape.Plane(axis, axis, {"loss": bowl}, {})
    (axes,) = landscape.draw_surface(plane).axes
    assert axes.get_zlabel() == "loss"
    assert axes.zaxis.get_data_interval()[1] == pytest.approx(1.5)


def test_levels_of_an_accuracy_are_even_and_what_diverged_is_the_lowest():
    values = 0.5 + 0.1 * AXIS[:, None] + 0.1 * AXIS
    values[0, 1] = np.nan
    figure = landscape.draw_planes({"a": plane(values, "accuracy")}, "accuracy")
    (fill, *_), bar = figure.axes[0].collections, figure.axes[1]
    assert fill.get_clim() == pytest.approx((30, 70))
    np.testing.assert_allclose(np.diff(fill.levels), 40 / 13)
    assert bar.get_ylabel() == "accuracy (%)"
    even = landscape.draw_planes({"a": plane(0 * values, "accuracy")}, "accuracy")
    assert even.axes[0].collections[0].get_clim()[0] == 0


def test_names_of_models_are_read_on_bright_and_on_dark():
    marks = {"a": (0, 0), "b": (0.5, 1), "diverged": (np.nan, 1.0)}
    figure = landscape.draw_planes(
        {"all": plane(AXIS**2 + AXIS[:, None] + 2, marks=marks)}
    )
    texts = figure.axes[0].texts
    assert [text.get_text() for text in texts] == ["a", "b"]
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


def test_barriers_of_rounds_that_diverged_are_left_out():
    figure = landscape.draw_barriers([1, 2, 3], {"loss": np.asarray([np.nan, 2, 0])})
    assert figure.axes[0].get_ylim()[0] == pytest.approx(-0.04)


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


def test_barriers_of_an_accuracy_are_points():
    barriers = {"accuracy": np.asarray([0.2, 0.1, 0]), "loss": np.asarray([2, 1, 0])}
    shares, loss = landscape.draw_barriers([1, 2, 3], barriers).axes
    assert shares.get_ylabel() == "accuracy barrier to the last (points)"
    np.testing.assert_allclose(shares.lines[0].get_ydata(), [20, 10, 0])
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [2, 1, 0])
