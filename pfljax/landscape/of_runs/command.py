"""Landscapes of a finished run: what `pfljax landscape RUN --kind KIND` does.

RUN/landscape/KIND.npz          arrays, below; KIND is "other" for lines to another run
RUN/landscape/KIND.csv          the same as a table
RUN/figures/landscape_KIND*.*   PNG and PDF, which RUN/report.html shows from then on

Axes of the arrays, with the array that holds the places where there is one:

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

from pfljax.landscape.figures import draw_line
from pfljax.landscape.of_runs import lines, surfaces
from pfljax.landscape.of_runs.surfaces import Found
from pfljax.report import write_run_report
from pfljax.report.formats import csv_text
from pfljax.report.style import save_figure
from pfljax.runs import folder

OWN = "t, from the server's model (0) to the client's own (1)"
OTHER = "t, from this run's models (0) to the other's (1)"


class Options(NamedTuple):
    """The options of `pfljax landscape`; None where they are not given."""

    points: int | None = None  # along an axis; else the kind's own
    tolerance: float | None = None  # of flat ranges; else .01
    other: Path | None = None  # a run to go to


class Kind(NamedTuple):
    """A landscape."""

    find: Callable[[Path, Options], Found]
    options: tuple[str, ...] = ("points",)  # those that it looks at


def line(path: Path, options: Options) -> Found:
    """Metrics between each client's two models, or its models of two runs."""
    tolerance = 0.01 if options.tolerance is None else options.tolerance
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance}; expected 0 or more")
    if options.other is not None and options.other.resolve() == path.resolve():
        raise ValueError(f"other is {path} itself; choose another run, or leave it out")
    points = _points(options, 11)
    found = lines.run_line(path, points=points, other=options.other)
    name, xlabel = found.about, OWN
    if options.other is not None:
        name, xlabel = f"from {name} to {options.other.name}", OTHER
    return Found(
        lines.arrays(found),
        lines.rows(found),
        {"": draw_line({name: found.line}, "accuracy", xlabel)},
        lines.table(found, tolerance),
    )


def _points(options: Options, default: int) -> int:
    return default if options.points is None else options.points


KINDS: dict[str, Kind] = {
    "line": Kind(line, ("points", "tolerance", "other")),
    "pairs": Kind(lambda path, o: surfaces.pairs_of(path, _points(o, 3))),
    "plane": Kind(lambda path, o: surfaces.plane_of(path, _points(o, 21))),
    "hessian": Kind(lambda path, o: surfaces.hessian_of(path, _points(o, 11))),
    "curvature": Kind(lambda path, o: surfaces.curvature_of(path), ()),
    "training": Kind(lambda path, o: surfaces.training_of(path, _points(o, 11))),
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
    for name, value in given._asdict().items():
        if value is not None and name not in KINDS[kind].options:
            those = ", ".join(
                repr(k) for k, own in KINDS.items() if name in own.options
            )
            raise ValueError(
                f"{name} is an option of the kind {those}, not of {kind!r}; leave it "
                "out"
            )
    found = KINDS[kind].find(path, given)
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
