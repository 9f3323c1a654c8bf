"""Figures: how they are laid out."""

import warnings

from pfljax.report import style


def test_a_long_legend_fits():
    figure, (axes,) = style.new_figure(6.4, 3.8)
    for number in range(16):
        axes.plot([0, 1], [0, number], label=f"method {number}\nits options\nand data")
    style.add_legend(axes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of axes without a size
        style.draw(figure, "svg")
