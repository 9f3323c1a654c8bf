"""How figures look: colours, axes, labels at the end of lines, saving.

Figures are `matplotlib.figure.Figure` objects; no pyplot, no global state is left
changed. matplotlib is imported inside functions: it takes a second.
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
CSS_PIXELS = 86  # an inch of a figure in a page
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


def told_once(
    labels: Sequence[str], curves: Sequence[np.ndarray]
) -> list[tuple[int, str]]:
    """(place, label) of each curve that is another's equal in no figure.

    Of equal ones the first is drawn, as "A = B": it would hide behind the others.
    """
    labels_of: dict[int, list[str]] = {}
    for place, label in enumerate(labels):
        for first in labels_of:
            if _drawn_alike(curves[first], curves[place]):
                labels_of[first].append(label)
                break
        else:
            labels_of[place] = [label]
    return [(place, " = ".join(equal)) for place, equal in labels_of.items()]


def _drawn_alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether no eye tells two curves of percent apart."""
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, equal_nan=True)


def seen_through(
    styles: Sequence[dict[str, Any]], curves: Sequence[np.ndarray]
) -> list[dict[str, Any]]:
    """The styles, dashed where a curve f[T] would hide one that is drawn before it.

    Both are seen then, for the one below shines through the gaps. Curves are of one T,
    or others are left as they are.
    """
    finite = [curve[np.isfinite(curve)] for curve in curves]
    every = np.concatenate([*finite, np.zeros(0)])
    span = float(np.ptp(every)) if len(every) else 0.0
    dashed = []
    for place, (style, curve) in enumerate(zip(styles, curves, strict=True)):
        hidden = sum(_is_near(curve, other, span) for other in curves[:place])
        gaps = (0, (4, 4 * hidden))
        dashed.append(style | {"linestyle": gaps} if hidden else style)
    return dashed


def _is_near(a: np.ndarray, b: np.ndarray, span: float) -> bool:
    """Whether a line of usual width would hide nearly all of the other."""
    if a.shape != b.shape:
        return False
    return bool(np.mean(np.abs(a - b) < 0.015 * span) > 0.9)


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


def whole_ticks(axis: "Axis") -> None:
    """Ticks at whole numbers, at most 13."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=12, integer=True))


def wrapped(label: str) -> str:
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


def save_figure(figure: "Figure", stem: Path, truetype: bool = False) -> bytes:
    """Writes stem.png and stem.pdf, the same bytes for the same figure; the PNG's.

    `truetype` embeds fonts that every venue takes; it adds 0.2 s. Else they are Type 3.
    """
    import matplotlib

    settings: dict[Any, Any] = SETTINGS | {"pdf.fonttype": 42 if truetype else 3}
    with matplotlib.rc_context(settings):
        image = _drawn(figure, "png", dpi=DPI, metadata={"Software": None})
        # The PNG settled the layout; a second time costs a third of the whole. Under
        # "none" Matplotlib would still draw the figure once before it saves it.
        figure.set_layout_engine(None)
        dates = {"CreationDate": None, "Producer": None}
        document = _drawn(figure, "pdf", metadata=dates)
    for suffix, content in ((".png", image), (".pdf", document)):
        with files.whole(stem.with_suffix(suffix)) as part:
            part.write_bytes(content)
    return image


def _drawn(figure: "Figure", kind: str, **options: Any) -> bytes:
    """The figure as a file of this kind, in memory.

    Where a disk is full, Matplotlib fails to close the file, which hides the reason.
    """
    content = io.BytesIO()
    figure.savefig(content, format=kind, **options)
    return content.getvalue()
