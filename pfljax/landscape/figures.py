"""Figures of lines, planes and pairs of models."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.evaluation.over_clients import GREATER_IS_BETTER
from pfljax.landscape.barriers import barrier
from pfljax.landscape.lines import Line
from pfljax.landscape.pairs import Pairs
from pfljax.landscape.planes import Plane
from pfljax.report.figures import draw_clients
from pfljax.report.heat_maps import heat_map
from pfljax.report.style import (
    INK,
    add_legend,
    line_styles,
    merge_equal,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = 14
CEILING = 1e9  # of a surface
SHARES = ("accuracy", "top5")  # of examples; drawn in percent, as in all reports
ENDS = ("one model", "the other")


def draw_planes(planes: Mapping[str, Plane], metric: str = "loss") -> "Figure":
    """Contours of planes side by side, with one scale for all.

    Models are marked, by name if there are several. The levels of an error are spaced
    logarithmically, and values that are not finite or exceed 30 times the least one are
    drawn as the highest level. The levels of an accuracy are spaced evenly, and values
    that are not finite are drawn as the lowest.

    Raises:
      ValueError: a plane is of many clients or lacks the metric, or no value is finite.
    """
    panel_values = [_scale(metric, _values(p, metric)) for p in planes.values()]
    levels = _levels(panel_values, metric)
    accurate = metric in GREATER_IS_BETTER
    worst = levels[0] if accurate else levels[-1]
    from matplotlib.colors import LogNorm, Normalize

    scale = Normalize if accurate else LogNorm
    norm = scale(levels[0], levels[-1])
    contours = []
    width = 3.0 * len(planes) + 0.8
    figure, panels = new_figure(width, 3.1, len(planes), sharey=True)
    titled = zip(panels, planes.items(), panel_values, strict=True)
    for axes, (title, plane), values in titled:
        finite = np.where(np.isfinite(values), values, worst)
        shown = finite.clip(levels[0], levels[-1])
        # contourf takes [y, x]: beta runs up.
        grid = (plane.alpha, plane.beta, shown.T, levels)
        filled = axes.contourf(*grid, norm=norm)
        contours.append(filled)
        axes.contour(*grid, colors="white", linewidths=0.4)
        _mark(axes, plane)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("alpha")
        axes.set_aspect("equal")
    panels[0].set_ylabel("beta")
    # All panels share the levels, so one bar serves them.
    figure.colorbar(
        contours[0],
        ax=panels,
        # Levels of an accuracy may be tenths of a percent apart.
        format="%.3g",
        label=_axis_label(metric),
    )
    return figure


def _scale(metric: str, values: np.ndarray) -> np.ndarray:
    """The values as they are drawn: shares in percent."""
    return 100 * values if metric in SHARES else values


def _axis_label(metric: str, unit: str = "%") -> str:
    """The label of an axis; `unit` is that of a share of examples."""
    return f"{metric} ({unit})" if metric in SHARES else metric


def _levels(values: Sequence[np.ndarray], metric: str) -> np.ndarray:
    """Ascending levels for all planes."""
    finite_values = [panel[np.isfinite(panel)] for panel in values]
    finite = np.concatenate(finite_values)
    if not len(finite):
        raise ValueError(
            f"no {metric} on the planes is finite; choose models that have not diverged"
        )
    low = float(finite.min())
    high = float(finite.max())
    if metric in GREATER_IS_BETTER:
        return np.linspace(low, max(high, low + 0.1), LEVELS)
    # A logarithm needs a positive end, and levels must ascend on a flat plane too.
    low = max(low, 1e-4)
    high = max(min(high, 30 * low), 1.01 * low)
    return np.geomspace(low, high, LEVELS)


def _mark(axes: "Axes", plane: Plane) -> None:
    """Marks the models that lie on the plane; a client's may not."""
    from matplotlib.patheffects import withStroke

    for name, position in plane.marks.items():
        if not np.isfinite(position).all():
            continue
        axes.plot(*position, "o", markerfacecolor="white", color=INK)
        if len(plane.marks) > 1:
            # To the inside: the next panel is near.
            is_right = position[0] > np.mean(plane.alpha)
            axes.annotate(
                name,
                position,
                (-5 if is_right else 5, 5),
                textcoords="offset points",
                ha="right" if is_right else "left",
                color="white",
                # White with a dark rim is legible on every colour of the map.
                path_effects=[withStroke(linewidth=2, foreground=INK)],
            )


def draw_surface(plane: Plane, metric: str = "loss") -> "Figure":
    """A plane as a surface over its two axes; values above 1e9 are cut off.

    Raises:
      ValueError: the plane is of many clients, or lacks the metric.
    """
    figure, panels = new_figure(4.6, 3.8, subplot_kw={"projection": "3d"})
    axes: Any = panels[0]
    values = np.nan_to_num(_scale(metric, _values(plane, metric)), nan=CEILING)
    values = np.minimum(values, CEILING)
    alpha, beta = np.meshgrid(plane.alpha, plane.beta, indexing="ij")
    axes.plot_surface(
        alpha,
        beta,
        values,
        cmap="viridis",
        linewidth=0,
        rcount=99,
        ccount=99,
    )
    axes.set(xlabel="alpha", ylabel="beta", zlabel=_axis_label(metric))
    return figure


def _values(plane: Plane, metric: str) -> np.ndarray:
    if metric not in plane.metrics:
        known = ", ".join(plane.metrics)
        raise ValueError(f"metric {metric!r} is unknown; known: {known}")
    values = plane.metrics[metric]
    if values.ndim != 2:
        raise ValueError(
            f"the plane has a {metric} of shape {values.shape}; expected the plane of "
            "one client, [A, B]"
        )
    return values


def draw_line(
    lines: Mapping[str, Line],
    metric: str = "accuracy",
    ends: tuple[str, str] = ENDS,
) -> "Figure":
    """A metric along lines: the mean over clients, and a band from 10 to 90 % of them.

    A line of one model has no band. Clients whose value is not finite are left out.

    Args:
      lines: by the names of the legend.
      metric: an accuracy is drawn in percent.
      ends: names of the models at t = 0 and at t = 1.
    """
    figure, (axes,) = new_figure(5.2, 3.2)
    styles = line_styles(lines)
    values = {
        name: _scale(metric, np.atleast_2d(line.metrics[metric]))
        for name, line in lines.items()
    }
    for name, label in merge_equal(values).items():
        t = lines[name].t
        draw_clients(axes, t, values[name].T, label=label, **styles[name])
    positions = np.concatenate([line.t for line in lines.values()])
    first, second = ends
    axes.set_xlabel(f"t, from {first} (0) to {second} (1)")
    axes.set_ylabel(_axis_label(metric))
    axes.set_xlim(positions.min(), positions.max())
    add_legend(axes)
    return figure


def draw_pairs(pairs: Pairs, metric: str = "loss") -> "Figure":
    """Two matrices over pairs of clients: barriers of a metric, and cosines."""
    figure, (left, right) = new_figure(7.8, 3.1, 2, sharey=True)
    barriers = _scale(metric, barrier(pairs.line, metric))
    # A barrier is at least 0 and a cosine at most 1, which fixes one end of the scale.
    title = f"barrier of the {_axis_label(metric, 'points')}"
    # If all are 0, the scale needs another end.
    highest = np.nanmax(barriers, initial=0) or 1.0
    _matrix(left, title, barriers, low=0, high=highest)
    _matrix(right, "cosine of the parameters", pairs.cosine, high=1)
    left.set_ylabel("client")
    return figure


def _matrix(
    axes: "Axes",
    title: str,
    values: np.ndarray,
    *,
    low: float | None = None,
    high: float | None = None,
) -> None:
    """Draws a matrix [K, K]; `low` and `high` are the ends of the colour scale."""
    heat_map(axes, values, title, aspect="equal", vmin=low, vmax=high)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("client")
    axes.locator_params(integer=True)


def draw_barriers(
    rounds: Sequence[int], barriers: Mapping[str, np.ndarray]
) -> "Figure":
    """Barriers f64[R] between each round and the last, with a panel for each metric."""
    width = 3.4 * len(barriers)
    figure, panels = new_figure(width, 2.8, len(barriers))
    (style,) = line_styles([""]).values()
    for axes, (name, values) in zip(panels, barriers.items(), strict=True):
        values = _scale(name, values)
        axes.plot(rounds, values, **style)
        unit = " (points)" if name in SHARES else ""
        axes.set(xlabel="round", ylabel=f"{name} barrier to the last{unit}")
        finite = values[np.isfinite(values)]
        highest = max(finite, default=0.0)
        # A little below 0, so that a line of no barrier is seen.
        lowest = -0.02 * max(1e-3, highest)
        axes.set_ylim(lowest, None)
    return figure
