"""bench.png: steps a second and share of the peak of each workload."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfljax.report.style import GREY, GRID, PALETTE, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"pfljax": PALETTE[0], "peer": GREY}
APART = 0.17  # of a row: ours above, the peer below


def write(results: list[dict[str, Any]], folder: Path) -> None:
    """Draws `results`, and the peer's rates where there are any."""
    height = 1.3 + 0.5 * len(results)
    figure, (rate, share) = new_figure(8.4, height, 2, sharey=True)
    panels = (rate, share)
    for row, result in enumerate(results):
        ours = (result["steps_per_second"], result["share_of_peak"])
        if "peer" in result:
            _points(panels, row - APART, ours, "pfljax")
            _points(panels, row + APART, _peer_spreads(result), "peer")
        else:
            _points(panels, row, ours, "pfljax")
    names = [f"{r['workload']} {r['method']}" for r in results]
    rate.set_yticks(range(len(names)), names)
    rate.set_ylim(len(names) - 0.5, -0.5)
    _decades(rate)
    rate.set_xlabel("local steps per second")
    share.set_xlabel("share of the measured matrix-product peak (%)")
    share.set_xlim(0, 1.15 * share.get_xlim()[1])
    # Empty curves, for the legend alone.
    if any("peer" in result for result in results):
        for name, colour in COLOURS.items():
            rate.plot([], [], "o", color=colour, label=name)
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
    save_figure(figure, folder / "bench")


def _peer_spreads(result: dict[str, Any]) -> tuple[dict[str, float], ...]:
    """The peer's (steps a second, share), if a step of its costs what ours costs."""
    rates = result["peer"]["steps_per_second"]
    share_of_a_step = result["flops_per_step"] / result["peak_flops"]
    shares = {key: share_of_a_step * value for key, value in rates.items()}
    return rates, shares


def _points(panels: Any, y: float, spreads: Any, who: str) -> None:
    """The medians of (steps a second, share), each with a line from least to most."""
    colour = COLOURS[who]
    # The share is drawn in percent.
    for axes, spread, unit in zip(panels, spreads, (1, 100), strict=True):
        low = unit * spread["min"]
        middle = unit * spread["median"]
        high = unit * spread["max"]
        axes.plot([low, high], [y, y], color=colour)
        axes.plot(middle, y, "o", color=colour, markersize=5)
        label = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
        axes.annotate(
            label,
            (high, y),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            size=8,
        )
        axes.grid(**GRID)
        axes.set_axisbelow(True)


def _decades(axes: "Axes") -> None:
    """A logarithmic axis from one power of ten to another, with room for numbers."""
    from matplotlib.ticker import NullFormatter

    # Rates of small and of large models are decades apart.
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(3 * high))
    axes.set_xlim(10**first, 10**last)
    axes.xaxis.set_minor_formatter(NullFormatter())
