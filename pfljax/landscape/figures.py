"""Figures of landscapes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pfljax.landscape.planes import Plane
from pfljax.report.style import INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 14


def draw_planes(planes: Mapping[str, Plane], metric: str = "loss") -> "Figure":
    """Contours of planes side by side, log-spaced and of one scale for all.

    The center is marked. Values above 30 times the least loss, and not finite ones, are
    drawn as the highest level.
    """
    values = [plane.metrics[metric] for plane in planes.values()]
    finite = np.concatenate([v[np.isfinite(v)] for v in values])
    low = max(float(finite.min()), 1e-4)
    high = min(float(finite.max()), 30 * low)
    levels = np.geomspace(low, max(high, 1.01 * low), LEVELS)
    from matplotlib.colors import LogNorm

    shown = []
    drawn, panels = new_figure(3.0 * len(planes) + 0.8, 3.1, len(planes), sharey=True)
    for axes, (title, plane), found in zip(panels, planes.items(), values, strict=True):
        clipped = np.clip(np.nan_to_num(found, nan=np.inf), levels[0], levels[-1])
        shown.append(
            axes.contourf(plane.alpha, plane.beta, clipped.T, levels, norm=LogNorm())
        )
        axes.contour(
            plane.alpha, plane.beta, clipped.T, levels, colors="white", linewidths=0.4
        )
        axes.plot(0, 0, "o", markerfacecolor="white", color=INK)
        axes.set_title(title, fontsize=10)
        axes.set_aspect("equal")
    drawn.colorbar(shown[0], ax=panels, format="%.2g", label=metric)
    return drawn
