"""Figures of landscapes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.evaluation.metrics import GREATER_IS_BETTER
from pfljax.landscape.barriers import barrier
from pfljax.landscape.curvature import Density
from pfljax.landscape.lines import Line
from pfljax.landscape.pairs import Pairs
from pfljax.landscape.planes import Plane
from pfljax.report.figures import over_clients
from pfljax.report.style import BAND, INK, label_ends, line_styles, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = 14
DECADES = 6  # of a density that are drawn


def draw_planes(planes: Mapping[str, Plane], metric: str = "loss") -> "Figure":
    """Contours of planes side by side, of one scale for all.

    Models are marked, by name if there are several. Levels of an error are log-spaced;
    values above 30 times the least one, and not finite ones, are drawn as the highest
    level. Levels of an accuracy are even, and values that are not finite the lowest.

    Raises:
      ValueError: a plane is of many clients or lacks the metric, or no value is finite.
    """
    panel_values = [_values(plane, metric) for plane in planes.values()]
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
        format="%.2g",
        label=metric,
    )
    return figure


def _levels(values: Sequence[np.ndarray], metric: str) -> np.ndarray:
    """Ascending levels for all planes."""
    if not values:
        raise ValueError("planes is empty; expected one plane or more, by their titles")
    finite_values = [panel[np.isfinite(panel)] for panel in values]
    finite = np.concatenate(finite_values)
    if not len(finite):
        raise ValueError(
            f"no {metric} on the planes is finite; expected models that have not "
            "diverged: choose others, or rounds before"
        )
    low = float(finite.min())
    high = float(finite.max())
    if metric in GREATER_IS_BETTER:
        return np.linspace(low, max(high, low + 1e-3), LEVELS)
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
            axes.annotate(
                name,
                position,
                (5, 5),
                textcoords="offset points",
                color="white",
                # White with a dark rim is read on every colour of the map.
                path_effects=[withStroke(linewidth=2, foreground=INK)],
            )


def draw_surface(plane: Plane, metric: str = "loss", ceiling: float = 1e9) -> "Figure":
    """A plane as a surface over its two axes; values above `ceiling` are cut off.

    Raises:
      ValueError: the plane is of many clients, or lacks the metric.
    """
    figure, panels = new_figure(4.6, 3.8, subplot_kw={"projection": "3d"})
    axes: Any = panels[0]
    values = np.nan_to_num(_values(plane, metric), nan=ceiling)
    values = np.minimum(values, ceiling)
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
    axes.set(xlabel="alpha", ylabel="beta", zlabel=metric)
    return figure


def _values(plane: Plane, metric: str) -> np.ndarray:
    if metric not in plane.metrics:
        known = ", ".join(plane.metrics)
        raise ValueError(f"metric {metric!r} is unknown; known: {known}")
    values = plane.metrics[metric]
    if values.ndim != 2:
        raise ValueError(
            f"the plane has a {metric} of shape {values.shape}, expected one client's, "
            "[A, B]; choose a client: plane.of(0)"
        )
    return values


def draw_line(
    lines: Mapping[str, Line],
    metric: str = "accuracy",
    xlabel: str = "t, from a (0) to b (1)",
) -> "Figure":
    """A metric along lines: mean over clients, and the band of their 10 to 90 %.

    A line of one model has no band. Clients whose value is not finite are left out.
    """
    figure, (axes,) = new_figure(5.2, 3.2)
    ends = []
    styles = line_styles(list(lines))
    for (name, line), style in zip(lines.items(), styles, strict=True):
        colour = style["color"]
        values = np.atleast_2d(line.metrics[metric])
        mean, low, high = over_clients(values.T)
        # One client has no spread.
        if len(values) > 1:
            axes.fill_between(line.t, low, high, color=colour, **BAND)
        axes.plot(line.t, mean, **style)
        ends.append((mean[-1], name, colour))
    # Lines may reach beyond their models: all of each is shown.
    positions = np.concatenate([line.t for line in lines.values()])
    axes.set(xlabel=xlabel, ylabel=metric)
    axes.set_xlim(positions.min(), positions.max())
    # Labels go last: they are spread within the final limits.
    label_ends(axes, ends)
    return figure


def draw_pairs(pairs: Pairs, metric: str = "loss") -> "Figure":
    """Two matrices over pairs of clients: barriers of a metric, and cosines."""
    figure, (left, right) = new_figure(7.2, 3.1, 2, sharey=True)
    barriers = barrier(pairs.line, metric)
    # A barrier is 0 or more, a cosine at most 1: those ends of the colours are fixed.
    _matrix(left, f"barrier of the {metric}", barriers, low=0)
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
    """Draws a matrix [K, K]; an end of its colours that is None is its own."""
    image = axes.imshow(values, vmin=low, vmax=high, cmap="viridis")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("client")
    axes.locator_params(integer=True)
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes, format="%.3g", shrink=0.8)


def draw_barriers(
    rounds: Sequence[int], barriers: Mapping[str, np.ndarray]
) -> "Figure":
    """Barriers f64[R] between each round and the last, a panel a metric."""
    width = 3.4 * len(barriers)
    figure, panels = new_figure(width, 2.8, len(barriers))
    # A panel has one line, so all have the first style.
    (style,) = line_styles([""])
    for axes, (name, values) in zip(panels, barriers.items(), strict=True):
        axes.plot(rounds, values, **style)
        axes.set(xlabel="round", ylabel=f"{name} barrier to the last")
        finite = values[np.isfinite(values)]
        highest = max(finite, default=0.0)
        # A little below 0, so that a line of no barrier is seen.
        lowest = -0.02 * max(1e-3, highest)
        axes.set_ylim(lowest, None)
    return figure


def draw_clients(values: Mapping[str, np.ndarray]) -> "Figure":
    """Quantities f[C] of all clients, a panel each, from the least to the greatest.

    Values that are not finite, of clients without rows, are left out.
    """
    width = 3.2 * len(values)
    figure, panels = new_figure(width, 2.8, len(values))
    (style,) = line_styles([""])
    for axes, (name, quantity) in zip(panels, values.items(), strict=True):
        finite = quantity[np.isfinite(quantity)]
        ordered = np.sort(finite)
        ranks = np.arange(1, len(ordered) + 1)
        axes.plot(ranks, ordered, ".", **style)
        axes.set(xlabel="clients, in the order of the value", ylabel=name)
        axes.locator_params(axis="x", integer=True)
    return figure


def draw_spectrum(
    densities: Mapping[str, Density],
    eigenvalues: Mapping[str, np.ndarray] | None = None,
) -> "Figure":
    """Spectral densities over one axis, log-scaled, the top 6 decades of the highest.

    `eigenvalues` marks those of a name, [k], as lines from the axis up.

    Raises:
      ValueError: for a density of many clients, or eigenvalues without a density.
    """
    eigenvalues = eigenvalues or {}
    _check_spectra(densities, eigenvalues)
    figure, (axes,) = new_figure(4.6, 3.1)
    styles = line_styles(list(densities))
    highest = 0.0
    for (name, spectrum), style in zip(densities.items(), styles, strict=True):
        axes.semilogy(spectrum.grid, spectrum.density, label=name, **style)
        peak = float(np.nanmax(spectrum.density))
        highest = max(highest, peak)
        for value in np.ravel(eigenvalues.get(name, ())):
            axes.axvline(value, ymax=0.2, linewidth=1, **style)
    # The bells' tails reach zero, which a logarithm cannot show.
    lowest = highest / 10**DECADES
    axes.set_ylim(lowest, 2 * highest)
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")
    axes.legend(frameon=False)
    return figure


def _check_spectra(
    densities: Mapping[str, Density], eigenvalues: Mapping[str, np.ndarray]
) -> None:
    for name, spectrum in densities.items():
        if spectrum.density.ndim != 1:
            raise ValueError(
                f"the density of {name!r} has shape {spectrum.density.shape}, expected "
                "that of one spectrum, [G]; give one client's, or a mean over clients"
            )
    if missing := sorted(set(eigenvalues) - set(densities)):
        raise ValueError(
            f"eigenvalues of {', '.join(missing)}, but densities of "
            f"{', '.join(densities)}; give the densities of the same names"
        )
