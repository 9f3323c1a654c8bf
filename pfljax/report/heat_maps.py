"""Matrices as colours: each has its colour bar, and numbers that are read on it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pfljax.report.style import Axes


def heat_map(
    axes: Axes,
    values: np.ndarray,
    label: str,
    texts: Sequence[Sequence[str]] = (),
    **more: Any,
) -> Any:
    """Draws a matrix with a colour bar that is called `label`, and returns the bar.

    Args:
        axes: where to.
        values: f[rows, columns]; NaN is drawn as nothing.
        label: what the colours are.
        texts: what to write into the cells, row by row; empty for nothing.
        more: as `Axes.imshow` takes it.
    """
    shown: dict[str, Any] = {"cmap": "viridis", "aspect": "auto"} | more
    image = axes.imshow(values, **shown)
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            if np.isfinite(values[i, j]):
                ink = ink_on(image.to_rgba(values)[i, j])
                axes.text(j, i, text, ha="center", va="center", color=ink, size=9)
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(image, ax=axes, label=label, pad=0.02)
    bar.ax.spines["outline"].set_visible(False)
    return bar


def ink_on(colour: Any) -> str:
    """Black or white, whichever is read better on a colour (r, g, b, ...) from 0 to 1.

    At a luminance of 0.18 both have the same contrast, as the WCAG define it.
    """
    luminance = np.array(colour[:3]) ** 2.2 @ (0.2126, 0.7152, 0.0722)
    return "white" if luminance < 0.18 else "black"
