"""Figures of lines, matrices over clients, barriers over rounds, and curvature."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.landscape.curvature import Density
from pfljax.landscape.lines import Line
from pfljax.report.figures import draw_clients
from pfljax.report.heat_maps import heat_map
from pfljax.report.style import (
    GREY,
    Axes,
    Figure,
    add_legend,
    line_styles,
    merge_equal,
    new_figure,
)

SHARES = ("accuracy", "top5")  # of examples; drawn in percent, as in all reports
DECADES = 6  # of a density that are drawn
ENDS = ("one model", "the other")
WIDEST = 56  # letters of the label of a panel
MOST_BANDS = 3  # translucent ones over one another
BARS = 3  # of each line, if there are many
FLOORS = {"loss": 1e-3, "accuracy": 0.1}  # nats and points; less may be rounding
LEAST_COSINE = 0.99  # the least upper part of the colours of cosines


def scale(metric: str, values: np.ndarray) -> np.ndarray:
    """The values as they are drawn: shares in percent."""
    return 100 * values if metric in SHARES else values


def label_axis(metric: str, unit: str = "%") -> str:
    """The label of an axis; `unit` is that of a share of examples."""
    return f"{metric} ({unit})" if metric in SHARES else metric


def hatch(axes: Axes, values: np.ndarray) -> None:
    """Shows where `values` are NaN, which no colour stands for, and says how many."""
    missing = int(np.isnan(values).sum())
    if missing:
        axes.patch.set(facecolor="#dddddd", hatch="////", edgecolor=GREY)
        note = f"hatched: {missing} of {values.size} not finite"
        axes.annotate(note, (0.5, -0.3), xycoords="axes fraction", ha="center", size=8)


def draw_line(
    lines: Mapping[str, Line],
    metric: str | Sequence[str] = "accuracy",
    ends: tuple[str, str] = ENDS,
) -> Figure:
    """Metrics along lines: the mean over clients, and a band from 10 to 90 % of them.

    More than three bands over one another could not be read: then it is the median, and
    bars at a few places go from 10 to 90 %. A line of one model has neither. Clients
    whose value is not finite are left out.

    Args:
      lines: by the names of the legend.
      metric: one, or several for a panel each; an accuracy is drawn in percent.
      ends: names of the models at t = 0 and at t = 1.
    """
    metrics = [metric] if isinstance(metric, str) else metric
    first, second = ends
    figure, panels = new_figure(1.8 + 4.4 * len(metrics), 3.2, len(metrics))
    for axes, name in zip(panels, metrics, strict=True):
        _draw_metric(axes, lines, name)
        label = f"t, from {first} (0) to {second} (1)"
        axes.set_xlabel(textwrap.fill(label, WIDEST))
    add_legend(panels[-1])
    return figure


def _draw_metric(axes: Axes, lines: Mapping[str, Line], metric: str) -> None:
    """Draws one metric along lines."""
    styles = line_styles(lines)
    values = {
        name: scale(metric, np.atleast_2d(line.metrics[metric]))
        for name, line in lines.items()
    }
    merged = merge_equal(values)
    for number, (name, label) in enumerate(merged.items()):
        t = lines[name].t
        style = {"label": label, **styles[name]}
        if len(merged) <= MOST_BANDS:
            draw_clients(axes, t, values[name].T, **style)
        else:
            share = (number + 0.5) / len(merged)
            _draw_median(axes, t, values[name], share, **style)
    positions = np.concatenate([line.t for line in lines.values()])
    axes.set_ylabel(label_axis(metric))
    axes.set_xlim(positions.min(), positions.max())


def _draw_median(
    axes: Axes, t: np.ndarray, values: np.ndarray, share: float, **style: Any
) -> None:
    """The median over clients of `values` [C, T], and bars from 10 to 90 % of them.

    The bars of several lines stand side by side: `share` from 0 to 1 says where.
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    low, middle, high = np.nanpercentile(finite, [10, 50, 90], axis=0)
    axes.plot(t, middle, **style)
    if len(values) > 1:
        at = t[0] + (np.arange(BARS) + share) / BARS * (t[-1] - t[0])
        ends = [np.interp(at, t, end) for end in (low, high)]
        axes.vlines(at, *ends, color=style["color"], linewidth=1.2)


def draw_matrices(
    matrices: Mapping[str, np.ndarray], ids: Sequence[int] | np.ndarray | None = None
) -> Figure:
    """Matrices [K, K] over pairs of clients, side by side.

    The colours never span rounding: a barrier below 0.001, or 0.1 points of accuracy,
    has the colour of 0 or nearly so, and the title says so. NaN is hatched.

    Args:
      matrices: by the quantity, such as "loss barrier" or "cosine".
      ids: the numbers of the clients; None for 0 to K - 1.
    """
    figure, panels = new_figure(3.1 * len(matrices), 3.0, len(matrices))
    for axes, (name, matrix) in zip(panels, matrices.items(), strict=True):
        metric, *_ = name.partition(" barrier")
        values = scale(metric, matrix)
        low, high, note = _choose_colours(metric, values)
        heat_map(axes, values, "", aspect="equal", vmin=low, vmax=high)
        unit = " (points)" if metric in SHARES else ""
        axes.set_title(f"{name}{unit}{note}", fontsize=10)
        axes.set_xlabel("client")
        _number_clients(axes, range(len(matrix)) if ids is None else ids)
        hatch(axes, matrix)
    panels[0].set_ylabel("client")
    return figure


def _number_clients(axes: Axes, ids: np.ndarray | Sequence[int]) -> None:
    """Up to six clients of a matrix have their numbers at both axes."""
    places = range(0, len(ids), -(-len(ids) // 6))
    names = [str(ids[place]) for place in places]
    axes.set_xticks(places, names)
    axes.set_yticks(places, names)


def _choose_colours(metric: str, values: np.ndarray) -> tuple[float, float, str]:
    """(least, greatest, note) of the colours of a matrix."""
    finite = values[np.isfinite(values)]
    if metric in ("cosine", "CKA"):
        return min(finite.min(initial=1.0), LEAST_COSINE), 1.0, ""
    highest = finite.max(initial=0.0)
    floor = FLOORS.get(metric, 0.0)
    if highest < floor:
        return 0.0, floor, f"\nat most {highest:.1g}"
    return 0.0, highest or 1.0, ""


def draw_rounds(
    rounds: Sequence[int],
    series: Mapping[str, Mapping[str, np.ndarray]],
    whose: str = "",
) -> Figure:
    """Barriers f64[R, n] by round, a panel for each metric and a line for each name.

    A line is the mean over n, with a band from 10 to 90 % of them. A barrier of 0 lies
    on a line above the edge of the panel.
    """
    figure, panels = new_figure(4.0 * len(series), 2.8, len(series))
    for axes, (metric, by_name) in zip(panels, series.items(), strict=True):
        for (name, values), style in zip(
            by_name.items(), line_styles(by_name).values(), strict=True
        ):
            shown = scale(metric, values)
            draw_clients(axes, rounds, shown, label=name, marker="o", **style)
        unit = " (points)" if metric in SHARES else ""
        axes.set_xlabel("round")
        axes.set_title(f"{metric} barrier{whose}{unit}", fontsize=10)
        highest = max(axes.dataLim.y1, FLOORS.get(metric, 1e-3))
        axes.set_ylim(-0.08 * highest, 1.08 * highest)
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=0)
        if len(by_name) > 1:
            axes.legend(frameon=False, fontsize=9)
    return figure


def draw_sharpness(values: Mapping[str, np.ndarray]) -> Figure:
    """Quantities f[C] of all clients, a panel each, from the least to the greatest.

    Values that are not finite, such as those of clients without examples, are left out.
    """
    width = 3.2 * len(values)
    figure, panels = new_figure(width, 2.8, len(values))
    (style,) = line_styles([""]).values()
    for axes, (name, quantity) in zip(panels, values.items(), strict=True):
        finite = quantity[np.isfinite(quantity)]
        ordered = np.sort(finite)
        ranks = np.arange(1, len(ordered) + 1)
        axes.plot(ranks, ordered, ".", **style)
        axes.set(xlabel="clients, in the order of the value", ylabel=name)
        axes.locator_params(axis="x", integer=True)
    return figure


def draw_layers(values: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Quantities f[C] of each layer, a panel each: the mean and a 10-90 % band."""
    longest = max(len(name) for by_layer in values.values() for name in by_layer)
    figure, panels = new_figure(3.6 * len(values), 2.4 + 0.08 * longest, len(values))
    (style,) = line_styles([""]).values()
    for axes, (quantity, by_layer) in zip(panels, values.items(), strict=True):
        places = range(len(by_layer))
        draw_clients(axes, places, np.stack([*by_layer.values()]), marker="o", **style)
        axes.set_xticks(places, list(by_layer), rotation=90)
        axes.set(ylabel=quantity)
    return figure


def draw_spectrum(
    label: str,
    spectrum: Density,
    eigenvalues: Sequence[float] | np.ndarray = (),
) -> Figure:
    """The spectral density of one Hessian, log-scaled, over 6 decades.

    Short lines mark the `eigenvalues`.
    """
    figure, (axes,) = new_figure(4.6, 3.1)
    (style,) = line_styles([label]).values()
    axes.semilogy(spectrum.grid, spectrum.density, label=label, **style)
    for value in eigenvalues:
        axes.axvline(value, ymax=0.2, linewidth=1, **style)
    highest = float(np.nanmax(spectrum.density))
    # The tails of the bells reach zero, which a logarithmic axis cannot show.
    axes.set_ylim(highest / 10**DECADES, 2 * highest)
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")
    axes.legend(frameon=False)
    return figure
