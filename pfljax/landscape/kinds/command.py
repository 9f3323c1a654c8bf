"""Landscapes of a finished run: what `pfljax landscape RUN --kind KIND` does.

RUN/landscape/KIND.npz          arrays, below; KIND is "other" for lines to another run
RUN/landscape/KIND.csv          the same as a table
RUN/figures/landscape_KIND*.*   PNG and PDF, which RUN/report.html shows from then on

Axes of the arrays; an axis is called as the array that holds its positions:

line, other  METRIC [client, t]; ensemble/METRIC, cosine, distance [client]
pairs        barrier/METRIC, cosine, distance [client, other]
plane        METRIC [alpha, beta]
hessian      METRIC [alpha, beta]; spectrum/density [spectrum/grid]
curvature    all [client]
training     METRIC [alpha, beta], the plane; METRIC barrier [round]
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax import registry
from pfljax.landscape.figures import draw_line
from pfljax.landscape.kinds import clients, lines, surfaces, training
from pfljax.landscape.kinds.record import Landscape
from pfljax.report import write_run_report
from pfljax.report.frames import make_frame
from pfljax.report.style import save_figure
from pfljax.runs import folder
from pfljax.runtime import files

TO_PERSONAL = ("the server's model", "the client's own")


class Options(NamedTuple):
    """The options of `pfljax landscape`; None where they are left out."""

    points: int | None = None  # along an axis; else the kind's own
    tolerance: float | None = None  # of flat ranges; else .01
    other: Path | None = None  # a run to go to


class Kind(NamedTuple):
    """A landscape."""

    compute: Callable[[Path, Options], Landscape]
    options: tuple[str, ...] = ("points",)  # those that it looks at


def line(path: Path, options: Options) -> Landscape:
    """Metrics between each client's two models, or its models of two runs."""
    other = options.other
    tolerance = 0.01 if options.tolerance is None else options.tolerance
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance}; expected 0 or more")
    if other is not None and other.resolve() == path.resolve():
        raise ValueError(f"other is {path} itself; choose another run, or leave it out")
    # An odd number, so that the midpoint is judged.
    result = lines.run_line(path, points=_points(options, 11), other=other)
    name = result.about
    ends = TO_PERSONAL
    if other is not None:
        name = f"from {name} to {other.name}"
        ends = (f"models of {path.name}", f"of {other.name}")
    return Landscape(
        arrays=lines.arrays(result),
        rows=lines.rows(result),
        figures={"": draw_line({name: result.line}, "accuracy", ends)},
        text=lines.table(result, tolerance),
    )


def _points(options: Options, default: int) -> int:
    return default if options.points is None else options.points


KINDS: dict[str, Kind] = {
    "line": Kind(line, ("points", "tolerance", "other")),
    "pairs": Kind(lambda path, o: clients.compute_pairs(path, _points(o, 3))),
    "plane": Kind(lambda path, o: surfaces.compute_plane(path, _points(o, 21))),
    "hessian": Kind(lambda path, o: surfaces.compute_hessian(path, _points(o, 11))),
    "curvature": Kind(lambda path, o: clients.compute_curvature(path), ()),
    "training": Kind(lambda path, o: training.compute_training(path, _points(o, 11))),
}


def landscape(path: Path, kind: str = "line", **options: Any) -> str:
    """Computes and writes the landscape `kind` of a run; what to print.

    `options` are fields of `Options`.

    Raises:
      ValueError: the kind is unknown, or an option is wrong or not of this kind; and
        what the kind raises.
    """
    chosen = Options(**options)
    _check(kind, chosen)
    landscape = KINDS[kind].compute(path, chosen)
    # Lines to another run leave those between endpoints as they are.
    name = "other" if chosen.other is not None else kind
    out = path / "landscape"
    _write_tables(out, name, landscape)
    stems = _write_figures(path / "figures", name, landscape)
    # The page of the run shows its figures.
    write_run_report(path)
    pictures = ", ".join(f"{path}/figures/{stem}.png" for stem in stems)
    return f"{landscape.text}\nsee {out}/{name}.csv and {pictures}"


def _check(kind: str, options: Options) -> None:
    registry.require_known("kind", kind, KINDS)
    for name, value in options._asdict().items():
        if value is None or name in KINDS[kind].options:
            continue
        kinds = [repr(k) for k, other in KINDS.items() if name in other.options]
        raise ValueError(
            f"{name} is an option of the kind {', '.join(kinds)}, not of {kind!r}; "
            "leave it out"
        )


def _write_tables(out: Path, name: str, landscape: Landscape) -> None:
    files.make_folder(out)
    folder.write_arrays(out / f"{name}.npz", landscape.arrays)
    files.write_text(out / f"{name}.csv", _csv_text(landscape.rows))


def _csv_text(lines: list[list]) -> str:
    """Lines of fields as CSV; a number that is not finite is left out."""
    header, *rows = lines
    table = make_frame(rows, header).replace([np.inf, -np.inf], np.nan)
    return table.to_csv(index=False)


def _write_figures(out: Path, name: str, landscape: Landscape) -> list[str]:
    """The figures' names, without their ends."""
    files.make_folder(out)
    stems = []
    for end, figure in landscape.figures.items():
        stem = f"landscape_{name}{end}"
        save_figure(figure, out / stem)
        stems.append(stem)
    return stems
