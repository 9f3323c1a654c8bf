"""The look of figures: colours, axes, legends, and saving.

Figures are `matplotlib.figure.Figure` objects, made without pyplot and its global
state. matplotlib is imported inside functions, for that takes a second.
"""

import io
import itertools
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.runtime import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure
else:
    Axes = Axis = Figure = Any

Style = dict[str, Any]  # keywords of a line, such as its color

WIDEST = 26  # characters of a line of a label
LONG = re.compile(r"[^:,]+[:,]?|[:,]")  # the parts of a long word
# Okabe and Ito's palette, safe for colour-blind readers; its yellow is left out.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288")
GREY = "#767676"
INK = "#222222"
DPI = 160  # of a PNG
DASHES = ("-", "--", ":", "-.")
SETTINGS: dict[Any, Any] = {
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "pdf.fonttype": 42,  # TrueType, which every venue takes
    "svg.fonttype": "none",  # letters stay letters: a page is a third as large
    "svg.hashsalt": "pfljax",  # equal figures have equal names inside
}
BAND: dict[str, Any] = {"alpha": 0.15, "linewidth": 0}
LINE = 0.17  # inches, of a legend
GRID: dict[str, Any] = {"color": "#e6e6e6", "linewidth": 0.6}


def new_figure(
    width: float, height: float, panels: int = 1, **more: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of `width` x `height` inches with `panels` axes side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False, **more)[0]
        return figure, list(axes)


def line_styles(names: Iterable[str], plain: str | None = None) -> dict[str, Style]:
    """Colour and dash by name, in this order; `plain` is dashed grey."""
    coloured = itertools.cycle(itertools.product(DASHES, PALETTE))
    styles = {}
    for name in names:
        dash, colour = ("--", GREY) if name == plain else next(coloured)
        styles[name] = {"color": colour, "linestyle": dash}
    return styles


def merge_equal(curves: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Equal curves as one: their label, such as "A = B", by the name of the first."""
    merged: dict[str, list[str]] = {}
    for name, curve in curves.items():
        equal = (
            first
            for first in merged
            if curves[first].shape == curve.shape
            and np.allclose(curves[first], curve, rtol=1e-4, equal_nan=True)
        )
        merged.setdefault(next(equal, name), []).append(name)
    return {first: " = ".join(names) for first, names in merged.items()}


def plot_line(axes: Axes, x: Any, y: Any, **style: Any) -> None:
    """Draws a line, or a dot if it has one point, which a line would not show."""
    dot = {"marker": "o", "clip_on": False} if len(x) == 1 else {}
    axes.plot(x, y, **dot, **style)


def add_legend(axes: Axes) -> None:
    """Names the labelled lines right of the axes, from the highest end downwards.

    A figure becomes as high as its legend.
    """
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    lines.sort(key=lambda line: -np.nan_to_num(np.asarray(line.get_ydata())[-1]))
    legend = axes.legend(
        handles=lines, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False
    )
    rows = 0
    for text in legend.get_texts():
        text.set_parse_math(False)
        rows += 1 + text.get_text().count("\n")
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.set_figheight(max(figure.get_figheight(), 0.5 + LINE * rows))


def integer_ticks(axis: Axis) -> None:
    """Sets ticks at whole numbers, at most 13."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=12, integer=True))


def name_ticks(axis: Axis, names: Sequence[str], **look: Any) -> None:
    """Sets ticks at 0, 1, ... with these names, or with at most 25 of them, evenly."""
    step = -(-len(names) // 25)
    short = [n if len(n) <= 24 else f"{n[:23]}…" for n in names[::step]]
    axis.set_ticks(range(0, len(names), step), short, parse_math=False, **look)


def wrap(label: str) -> str:
    """A label in lines of about 26 characters; a longer word breaks behind : or ,."""
    words = [
        part
        for word in label.split()
        for part in (re.findall(LONG, word) if len(word) > WIDEST else [word])
    ]
    return textwrap.fill(
        " ".join(words), WIDEST, break_long_words=False, break_on_hyphens=False
    )


def save_figure(
    figure: Figure,
    stem: Path,
    kinds: Sequence[str] = ("png", "pdf"),
    caption: str = "",
) -> None:
    """Writes stem.png, stem.pdf or other kinds; equal figures give equal bytes.

    A PNG keeps its caption as its description.
    """
    for kind in kinds:
        # The name may have dots.
        with files.whole(stem.with_name(f"{stem.name}.{kind}")) as part:
            part.write_bytes(draw(figure, kind, caption))


def draw(figure: Figure, kind: str, caption: str = "") -> bytes:
    """The figure as a file of this kind."""
    import matplotlib

    dates: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}}
    dates["pdf"] = {"CreationDate": None, "Producer": None}
    if caption:
        dates["png"]["Description"] = caption
    content = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(content, format=kind, dpi=DPI, metadata=dates[kind])
    return content.getvalue()
