"""Figures of the curvature: values of clients, and the spectrum of a Hessian."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pfljax.landscape.curvature import Density
from pfljax.report.style import line_styles, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECADES = 6  # of a density that are drawn


def draw_clients(values: Mapping[str, np.ndarray]) -> "Figure":
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


def draw_spectrum(
    label: str,
    spectrum: Density,
    eigenvalues: Sequence[float] | np.ndarray = (),
) -> "Figure":
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
