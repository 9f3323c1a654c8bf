"""The look of figures: colours, axes, labels at the end of lines, and saving.

Figures are `matplotlib.figure.Figure` objects, made without pyplot and its global
state. matplotlib is imported inside functions, for that takes a second.
"""

import io
import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.runtime import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

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
GRID: dict[str, Any] = {"color": "#e6e6e6", "linewidth": 0.6}


def new_figure(
    width: float, height: float, panels: int = 1, **more: Any
) -> "tuple[Figure, list[Axes]]":
    """A figure of `width` x `height` inches with `panels` axes side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False, **more)[0]
        return figure, list(axes)


def line_styles(names: Sequence[str], plain: str | None = None) -> list[dict[str, Any]]:
    """Colour and dash of each name by its position; `plain` is dashed grey."""
    coloured = itertools.cycle(itertools.product(DASHES, PALETTE))
    styles: list[dict[str, Any]] = []
    for name in names:
        if name == plain:
            styles.append({"color": GREY, "linestyle": "--"})
        else:
            dash, colour = next(coloured)
            styles.append({"color": colour, "linestyle": dash})
    return styles


def merge_equal(
    labels: Sequence[str], curves: Sequence[np.ndarray]
) -> list[tuple[int, str]]:
    """(index, label) of each curve; equal ones are one, labelled "A = B"."""
    merged: dict[int, list[str]] = {}
    for index, label in enumerate(labels):
        for first, names in merged.items():
            a, b = curves[first], curves[index]
            if a.shape == b.shape and np.allclose(a, b, rtol=1e-4, equal_nan=True):
                names.append(label)
                break
        else:
            merged[index] = [label]
    return [(index, " = ".join(names)) for index, names in merged.items()]


def label_ends(axes: "Axes", ends: Sequence[tuple[float, str, str]]) -> None:
    """Writes (y, text, colour) at the right edge, spread so that none overlap.

    Call it when the limits of the axes are final.
    """
    ends = [end for end in ends if np.isfinite(end[0])]
    lines = np.array([text.count("\n") + 1 for _, text, _ in ends])
    low, high = axes.get_ylim()
    height = axes.get_figure().get_size_inches()[1]  # type: ignore[union-attr]
    # In parts of the axes: labels keep their size, whatever the limits are.
    wanted = np.array([(y - low) / (high - low) for y, _, _ in ends])
    sizes = (0.05 + 0.17 * lines) / height
    centres = spread(np.clip(wanted, 0, 1), sizes)
    for (_, text, colour), y, centre in zip(ends, wanted, centres, strict=True):
        axes.plot(
            [1.0, 1.02, 1.035],
            [np.clip(y, 0, 1), centre, centre],
            color=colour,
            linewidth=0.8,
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.text(
            1.045,
            centre,
            text,
            color=colour,
            va="center",
            transform=axes.transAxes,
            parse_math=False,
        )
    axes.set_ylim(low, high)


def integer_ticks(axis: "Axis") -> None:
    """Sets ticks at whole numbers, at most 13."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=12, integer=True))


def wrap(label: str) -> str:
    """A label broken into lines of 26 characters at most."""
    return textwrap.fill(" ".join(label.split()), 26)


def spread(wanted: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Centres near `wanted` f[n], in its order, of labels `sizes` f[n] high.

    Neighbours that would overlap form a block, which lies as near as it can to what its
    members want, inside [0, 1] where it fits.
    """
    blocks: list[np.ndarray] = []
    centres = np.array(wanted, float)
    for i in np.argsort(wanted, kind="stable"):
        block = np.array([i])
        while True:
            heights = sizes[block]
            offset = np.cumsum(heights) - heights / 2
            room = max(0.0, 1 - float(heights.sum()))
            # Least squares: the mean of where each member wants the block to start.
            wanted_start = np.mean(wanted[block] - offset)
            start = np.clip(wanted_start, 0, room)
            centres[block] = start + offset
            # The tolerance lets blocks touch: rounding must not make them overlap.
            if not blocks or _top(blocks[-1], centres, sizes) <= start + 1e-9:
                break
            block = np.concatenate([blocks.pop(), block])
        blocks.append(block)
    return centres


def _top(block: np.ndarray, centres: np.ndarray, sizes: np.ndarray) -> float:
    """The upper edge of a block of labels."""
    last = block[-1]
    return float(centres[last] + sizes[last] / 2)


def save_figure(
    figure: "Figure", stem: Path, kinds: Sequence[str] = ("png", "pdf")
) -> None:
    """Writes stem.png, stem.pdf or other kinds; equal figures give equal bytes."""
    for kind in kinds:
        with files.whole(stem.with_suffix(f".{kind}")) as part:
            part.write_bytes(draw(figure, kind))


def draw(figure: "Figure", kind: str) -> bytes:
    """The figure as a file of this kind."""
    import matplotlib

    dates: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}}
    dates["pdf"] = {"CreationDate": None, "Producer": None}
    content = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(content, format=kind, dpi=DPI, metadata=dates[kind])
    return content.getvalue()
