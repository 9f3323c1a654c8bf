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


def test_a_label_breaks_between_words_or_behind_a_comma_or_colon():
    assert style.wrap("ditto:lam=0.1 partition=shards:per_client=2 lr=1e-20") == (
        "ditto:lam=0.1\npartition=shards:\nper_client=2 lr=1e-20"
    )
    long = 40 * "x"
    assert style.wrap(long) == long
