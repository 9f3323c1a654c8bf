"""Figures of the curvature: of clients, and spectra."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pfljax.landscape.curvature import Density
from pfljax.report.style import line_styles, merge_equal, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECADES = 6  # of a density that are drawn


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
    names = list(densities)
    styles = line_styles(names)
    curves = [np.stack([d.grid, d.density]) for d in densities.values()]
    highest = 0.0
    for index, label in merge_equal(names, curves):
        grid, density = curves[index]
        axes.semilogy(grid, density, label=label, **styles[index])
        peak = float(np.nanmax(density))
        highest = max(highest, peak)
    for name, style in zip(names, styles, strict=True):
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
