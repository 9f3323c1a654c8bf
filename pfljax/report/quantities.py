"""Quantities that a method reports of each client, such as pFedVEM's confidence tau."""

import warnings
from typing import Any

import numpy as np

from pfljax.report.style import GRID, PALETTE, Axes, Figure, integer_ticks, new_figure
from pfljax.runs.result import Result

PREFIX = "client/"  # of their names in clients.npz
SPAN = 10  # greatest by least number from which on an axis is logarithmic


def list_quantities(run: Result) -> dict[str, np.ndarray]:
    """The quantities at the last evaluation, f[C] by name."""
    return {
        name.removeprefix(PREFIX): values[-1]
        for name, values in run.clients.items()
        if name.startswith(PREFIX)
    }


def quantities_by_size(run: Result) -> Figure | None:
    """The quantities of each client by its training examples."""
    quantities = list_quantities(run)
    if not quantities:
        return None
    size = run.clients["train_size"]
    figure, panels = new_figure(0.6 + 2.6 * len(quantities), 3.0, len(quantities))
    for axes, (name, values) in zip(panels, quantities.items(), strict=True):
        scatter(axes, size, values)
        title = f"{name}{correlation_text(size, values)}"
        axes.set_title(title, parse_math=False)
        axes.set_xlabel("training examples")
        if axes.get_xscale() == "linear":
            integer_ticks(axes.xaxis)
    return figure


def scatter(axes: Axes, x: Any, values: Any, colour: str = PALETTE[0]) -> None:
    """Draws a dot for each client; wide axes are logarithmic."""
    axes.plot(x, values, "o", color=colour, markersize=4, alpha=0.6, rasterized=True)
    for numbers, scale in ((x, axes.set_xscale), (values, axes.set_yscale)):
        numbers = np.asarray(numbers, float)
        finite = numbers[np.isfinite(numbers)]
        if len(finite) and 0 < SPAN * finite.min() < finite.max():
            scale("log")
    axes.grid(**GRID)


def correlation_text(x: Any, values: Any) -> str:
    """The rank correlation in words; empty if it is NaN."""
    correlation = rank_correlation(x, values)
    return "" if np.isnan(correlation) else f"\nrank correlation {correlation:.2f}"


def rank_correlation(x: Any, values: Any) -> float:
    """Spearman's rank correlation; NaN if one of both is constant."""
    from scipy.stats import spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result: Any = spearmanr(x, values, nan_policy="omit")
    return float(result.statistic)
