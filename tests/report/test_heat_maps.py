"""Heat maps have a colour bar, and numbers that are read on every colour."""

import numpy as np
import pytest

from pfljax.report.heat_maps import heat_map, ink_on
from pfljax.report.style import new_figure


@pytest.mark.parametrize(
    ("colour", "ink"),
    [
        ((1, 1, 1), "black"),
        ((0, 0, 0), "white"),
        ((0.03, 0.19, 0.42, 1.0), "white"),  # the dark end of Blues
        ((0.99, 0.91, 0.14, 1.0), "black"),  # the bright end of viridis
        ((0.42, 0.68, 0.84), "black"),
    ],
)
def test_ink_has_contrast(colour, ink):
    assert ink_on(colour) == ink


@pytest.mark.parametrize("cmap", ["Blues", "viridis"])
def test_every_cell_is_read_and_the_bar_says_what_it_is(cmap):
    figure, (axes,) = new_figure(4, 3)
    values = np.linspace(0, 1, 12).reshape(3, 4)
    values[1, 1] = np.nan
    texts = [[f"{value:.1f}" for value in row] for row in values]
    heat_map(axes, values, "accuracy (%)", texts, cmap=cmap)
    assert figure.axes[1].get_ylabel() == "accuracy (%)"
    assert len(axes.texts) == 11  # nothing is drawn of NaN
    (image,) = axes.get_images()
    for text in axes.texts:
        column, row = map(int, text.get_position())
        assert text.get_color() == ink_on(image.to_rgba(values[row, column]))
    assert {text.get_color() for text in axes.texts} == {"white", "black"}
