"""Figures of planes: contours with the models that lie on them."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.evaluation.over_clients import is_greater_better
from pfljax.landscape.figures import hatch, label_axis, scale
from pfljax.landscape.frames import Mark
from pfljax.landscape.planes import Plane
from pfljax.report.style import INK, Axes, Figure, new_figure

LEVELS = 12  # about so many
CEILING = 30  # times the least loss: losses above are not told apart
STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)  # of levels within a decade
POINTS = 170  # of a panel's width, about so many
LETTER, LINE = 6.5, 13  # width and height of a letter, in points
GAP = 5  # points between a model and its name


def draw_planes(
    planes: Mapping[str, Plane],
    metric: str = "loss",
    ways: Mapping[str, Sequence[Any] | np.ndarray | None] | None = None,
) -> Figure:
    """Contours of planes side by side, with one scale for all and equal axes.

    Models are marked, by name if there are several. The levels are round. Those of an
    error are spaced logarithmically if it spans a wide range, and what exceeds 30 times
    the least one has the colour of the arrow on the bar. Values that are NaN are
    hatched.

    Args:
      planes: by the title of their panels, each of one client.
      metric: an accuracy is drawn in percent.
      ways: positions [n, 2] of models that are joined by a line, by the title of their
        plane, such as those of a curve or of the rounds of a run.

    Raises:
      ValueError: a plane lacks the metric, or no value is finite.
    """
    values = {title: _values(each, metric) for title, each in planes.items()}
    levels = _choose_levels(list(values.values()), metric)
    every = np.concatenate([panel.ravel() for panel in values.values()])
    colours: dict[str, Any] = {"levels": levels, "extend": _find_ends(every, levels)}
    from matplotlib.colors import BoundaryNorm

    colours["norm"] = BoundaryNorm(levels, 256, extend=colours["extend"])
    fills = []
    figure, panels = new_figure(3.2 * len(planes) + 0.8, 3.3, len(planes))
    for axes, (title, each) in zip(panels, planes.items(), strict=True):
        shown = np.where(np.isinf(values[title]), 1e30, values[title])
        # contourf takes [y, x]: beta runs up.
        grid = (each.alpha, each.beta, np.ma.masked_invalid(shown.T))
        fills.append(axes.contourf(*grid, **colours))
        axes.contour(*grid, levels=levels, colors="white", linewidths=0.4)
        hatch(axes, values[title])
        way = (ways or {}).get(title)
        if way is not None:
            axes.plot(*np.asarray(way).T, color=INK, linewidth=1.2)
        _mark(axes, each)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(_name_axes(each)[0])
        if axes is panels[0]:
            axes.set_ylabel(_name_axes(each)[1])
        axes.set_aspect("equal")
    # All panels share the levels, so one bar serves them.
    bar = figure.colorbar(fills[0], ax=panels, label=label_axis(metric), format="%g")
    bar.set_ticks(list(levels))
    return figure


def _choose_levels(panels: Sequence[np.ndarray], metric: str) -> np.ndarray:
    """Ascending round levels for all planes."""
    from matplotlib.ticker import MaxNLocator

    every = np.concatenate([panel.ravel() for panel in panels])
    finite = every[np.isfinite(every)]
    if not len(finite):
        raise ValueError(
            f"no {metric} on the planes is finite; choose models that have not diverged"
        )
    low = float(finite.min())
    high = float(finite.max())
    if is_greater_better(metric):
        high = max(high, low + 0.1)
        return np.asarray(MaxNLocator(LEVELS).tick_values(low, high))
    # A logarithm needs a positive end, and levels must ascend on a flat plane too.
    low = max(low, 1e-4)
    high = max(min(high, CEILING * low), 1.01 * low)
    if high < 3 * low:
        return np.asarray(MaxNLocator(LEVELS).tick_values(low, high))
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    levels = np.outer(decades, STEPS).ravel().round(6)
    first = np.searchsorted(levels, low, "right") - 1
    return levels[first : np.searchsorted(levels, high) + 1]


def _find_ends(values: np.ndarray, levels: np.ndarray) -> str:
    """Which ends of the bar have an arrow: some values lie beyond."""
    below = (values < levels[0]).any()
    above = (values > levels[-1]).any()
    return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[
        int(below), int(above)
    ]


def _mark(axes: Axes, plane: Plane) -> None:
    """Marks the models that lie on the plane, with names that do not overlap."""
    from matplotlib.patheffects import withStroke

    marks = {n: at for n, at in plane.marks.items() if np.isfinite(at).all()}
    for at in marks.values():
        axes.plot(*at, "o", markersize=4, markerfacecolor="white", color=INK)
    for name, (x, y) in _place_names(marks, plane).items():
        axes.annotate(
            name,
            marks[name],
            (GAP * x, GAP * y),
            textcoords="offset points",
            ha="left" if x > 0 else "right",
            va="bottom" if y > 0 else "top",
            color="white",
            # White with a dark rim is legible on every colour of the map.
            path_effects=[withStroke(linewidth=2, foreground=INK)],
        )


def _place_names(marks: Mapping[str, Mark], plane: Plane) -> dict[str, tuple[int, int]]:
    """The corner of its model at which each name stands, (1, 1) for right and above.

    A name that would lie nearer to another model, or over another name, is left out.
    """
    point = max(np.ptp(plane.alpha), np.ptp(plane.beta)) / POINTS
    dots = np.array([*marks.values()])
    boxes: list[tuple[np.ndarray, np.ndarray]] = []
    found = {}
    # The last and the first come first: they are of most interest.
    names = list(marks) if len(marks) > 1 else []
    for name in [*names[-1:], *names[:-1]]:
        at = np.array(marks[name])
        half = point * np.array([LETTER * len(name), LINE]) / 2
        # To the inside: the next panel is near.
        inside = -1 if at[0] > np.mean(plane.alpha) else 1
        for side in itertools.product((inside, -inside), (1, -1)):
            middle = at + side * (half + GAP * point)
            nearest = dots[np.linalg.norm(dots - middle, axis=1).argmin()]
            is_free = all((abs(middle - m) > half + h).any() for m, h in boxes)
            if is_free and np.array_equal(nearest, at):
                boxes.append((middle, half))
                found[name] = side
                break
    return found


def _name_axes(plane: Plane) -> tuple[str, str]:
    """The labels of the axes: through models, both are in the unit of distances."""
    is_around = set(plane.marks) <= {"center"}
    return ("alpha", "beta") if is_around else ("distance", "distance")


def _values(plane: Plane, metric: str) -> np.ndarray:
    """The values as they are drawn: shares in percent."""
    if metric not in plane.metrics:
        known = ", ".join(plane.metrics)
        raise ValueError(f"metric {metric!r} is unknown; known: {known}")
    return scale(metric, plane.metrics[metric])
