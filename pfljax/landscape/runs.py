"""Landscapes of a finished run: what `pfljax landscape RUN --kind KIND` does.

RUN/landscape/KIND.npz          arrays; KIND is "other" for lines to another run
RUN/landscape/KIND.csv          the same as a table
RUN/figures/landscape_KIND*.*   PNG and PDF, which RUN/report.html shows from then on
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pfljax import folder
from pfljax.landscape import run_lines, run_surfaces
from pfljax.landscape.figures import draw_line
from pfljax.landscape.run_surfaces import Found
from pfljax.report import write_run_report
from pfljax.report.formats import csv_text
from pfljax.report.style import save_figure


class Options(NamedTuple):
    """The options of `pfljax landscape`; a kind looks at some of them."""

    points: int | None = None  # along an axis; None for the kind's own
    tolerance: float = 0.01  # of flat ranges
    other: Path | None = None  # a run to go to


def line(path: Path, options: Options) -> Found:
    """Metrics between each client's two models, or its models of two runs."""
    points = _points(options, 11)
    found = run_lines.run_line(path, points=points, other=options.other)
    name = found.about
    if options.other is not None:
        name = f"from {name} to {options.other.name}"
    return Found(
        run_lines.arrays(found),
        run_lines.rows(found),
        {"": draw_line({name: found.line}, "accuracy")},
        run_lines.table(found, options.tolerance),
    )


def _points(options: Options, default: int) -> int:
    return default if options.points is None else options.points


KINDS: dict[str, Callable[[Path, Options], Found]] = {
    "line": line,
    "pairs": lambda path, o: run_surfaces.pairs_of(path, _points(o, 3)),
    "plane": lambda path, o: run_surfaces.plane_of(path, _points(o, 21)),
    "hessian": lambda path, o: run_surfaces.hessian_of(path, _points(o, 11)),
    "curvature": lambda path, o: run_surfaces.curvature_of(path),
    "training": lambda path, o: run_surfaces.training_of(path, _points(o, 11)),
}


def landscape(path: Path, kind: str = "line", **options: Any) -> str:
    """Computes and writes the landscape `kind` of a run; what to print.

    `options` are fields of `Options`.

    Raises:
      ValueError: the kind is unknown, or an option is wrong or not of this kind; and
        what the kind raises.
    """
    given = Options(**options)
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; known: {', '.join(KINDS)}")
    if not given.tolerance >= 0:
        raise ValueError(f"tolerance is {given.tolerance}; expected 0 or more")
    if given.other is not None and kind != "line":
        raise ValueError(f"other is an option of the kind 'line', not of {kind!r}")
    if given.points is not None and kind == "curvature":
        raise ValueError("points is no option of the kind 'curvature'; leave it out")
    found = KINDS[kind](path, given)
    kind = kind if given.other is None else "other"
    out, figures = path / "landscape", path / "figures"
    out.mkdir(exist_ok=True)
    figures.mkdir(exist_ok=True)
    folder.write_arrays(out / f"{kind}.npz", found.arrays)
    part = out / f"{kind}.csv.part"
    part.write_text(csv_text(found.rows))
    part.replace(out / f"{kind}.csv")
    for name, figure in found.figures.items():
        save_figure(figure, figures / f"landscape_{kind}{name}")
    write_run_report(path)  # its page shows the figures
    drawn = ", ".join(f"{path}/figures/landscape_{kind}{n}.png" for n in found.figures)
    return f"{found.text}\nsee {out}/{kind}.csv and {drawn}"
