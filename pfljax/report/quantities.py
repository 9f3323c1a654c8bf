"""What a method tells of each client, such as a confidence: a table's and a figure's.

They are those of the last evaluation.
"""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.report.html import EMPTY
from pfljax.report.runs import Run
from pfljax.report.style import GRID, PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PREFIX = "client/"  # of the names in per_client.npz
SPAN = 10  # of numbers whose axis is logarithmic: the greatest by the least


def quantities_of(run: Run) -> dict[str, np.ndarray]:
    """f[C] of the last evaluation, by name; of most methods none."""
    return {
        name.removeprefix(PREFIX): values[-1]
        for name, values in run.per_client.items()
        if name.startswith(PREFIX)
    }


def four_digits(value: Any) -> str:
    """A number of four digits, a dash for NaN."""
    return EMPTY if np.isnan(value) else f"{value:.4g}"


def quantities_by_size(run: Run) -> "Figure | None":
    """Each quantity of the clients against their training rows, a panel a quantity."""
    quantities = quantities_of(run)
    if not quantities:
        return None
    from matplotlib.ticker import MaxNLocator

    figure, panels = new_figure(0.6 + 2.6 * len(quantities), 3.0, len(quantities))
    for axes, (name, values) in zip(panels, quantities.items(), strict=True):
        scatter(axes, run.per_client["train_size"], values)
        axes.set_title(f"{name}{correlated(run.per_client['train_size'], values)}")
        axes.set_xlabel("training rows")
        if axes.get_xscale() == "linear":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def scatter(axes: "Axes", x: Any, values: Any, colour: str = PALETTE[0]) -> None:
    """A dot a client; axes of numbers that span a factor of ten are logarithmic."""
    axes.plot(x, values, "o", color=colour, markersize=4, alpha=0.6, rasterized=True)
    for numbers, scale in ((x, axes.set_xscale), (values, axes.set_yscale)):
        numbers = np.asarray(numbers, float)
        counted = numbers[np.isfinite(numbers)]
        if len(counted) and 0 < SPAN * counted.min() < counted.max():
            scale("log")
    axes.grid(**GRID)


def correlated(x: Any, values: Any) -> str:
    """Spearman's rank correlation in words; nothing where one of both is constant."""
    correlation = rank_correlation(x, values)
    return "" if np.isnan(correlation) else f"\nrank correlation {correlation:.2f}"


def rank_correlation(x: Any, values: Any) -> float:
    """Spearman's rank correlation; NaN where one of both is constant."""
    from scipy.stats import spearmanr

    with warnings.catch_warnings():
        # Of constants it is NaN, as it should be.
        warnings.simplefilter("ignore", RuntimeWarning)
        result: Any = spearmanr(x, values, nan_policy="omit")
    return float(result.statistic)
