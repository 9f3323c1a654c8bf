"""Landscapes of a finished run: the command `pfljax landscape RUN --kind KIND`.

RUN/landscape/KIND.npz          arrays, below; KIND is "other" for lines to another run
RUN/landscape/KIND.csv          the same as a table
RUN/figures/landscape_KIND*.*   PNG and PDF, which RUN/report.html shows from then on

Axes of the arrays; an axis has the name of the array with its positions:

line, other  METRIC [client, t]; ensemble/METRIC, cosine, distance [client]
pairs        barrier/METRIC, cosine, distance [client, other]
plane        METRIC [alpha, beta]
hessian      METRIC [alpha, beta]; spectrum/density [spectrum/grid]
curvature    all [client]
training     METRIC [alpha, beta], the plane; METRIC barrier [round]
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pfljax.core import requirements
from pfljax.landscape.kinds import clients, lines, surfaces, training
from pfljax.landscape.kinds.record import Landscape
from pfljax.report import write_run_report
from pfljax.report.frames import to_csv
from pfljax.report.style import save_figure
from pfljax.runs import folder
from pfljax.runtime import files

TOLERANCE = 0.01  # of flat ranges


class Kind(NamedTuple):
    """A kind of landscape of a run."""

    compute: Callable[..., Landscape]  # (path, points), or (path) without points
    points: int | None  # along an axis, unless the user says otherwise


KINDS: dict[str, Kind] = {
    "line": Kind(lines.compute_lines, 11),
    "pairs": Kind(clients.compute_pairs, 3),
    "plane": Kind(surfaces.compute_plane, 21),
    "hessian": Kind(surfaces.compute_hessian, 11),
    "curvature": Kind(clients.compute_curvature, None),
    "training": Kind(training.compute_training, 11),
}


def landscape(
    path: Path,
    kind: str = "line",
    points: int | None = None,
    tolerance: float | None = None,
    other: Path | None = None,
) -> str:
    """Computes and writes the landscape `kind` of a run, and returns a text to print.

    Args:
      path: the run folder.
      kind: one of `KINDS`.
      points: number of points along an axis.
      tolerance: of the flat ranges of lines.
      other: a second run, for lines between both.

    Raises:
      ValueError: the kind is unknown, an option is wrong or does not belong to this
        kind, or the kind does not fit the run.
    """
    requirements.require_known("kind", kind, KINDS)
    default = KINDS[kind].points
    if default is None and points is not None:
        raise ValueError(f"points is not an option of the kind {kind!r}; leave it out")
    arguments = [] if default is None else [default if points is None else points]
    if kind == "line":
        arguments += _check_line(path, tolerance, other)
    elif tolerance is not None or other is not None:
        raise ValueError(
            f"tolerance and other are options of the kind 'line', not of {kind!r}; "
            "leave them out"
        )
    result = KINDS[kind].compute(path, *arguments)
    # Lines to another run leave those between endpoints as they are.
    return _write(path, "other" if other is not None else kind, result)


def _check_line(path: Path, tolerance: float | None, other: Path | None) -> tuple:
    """(tolerance, other) of lines, if they are possible."""
    if other is not None and other.resolve() == path.resolve():
        raise ValueError(f"other is {path} itself; choose another run, or leave it out")
    tolerance = TOLERANCE if tolerance is None else tolerance
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance}; expected 0 or more")
    return tolerance, other


def _write(path: Path, name: str, landscape: Landscape) -> str:
    """Writes the files of a landscape, and returns a text to print."""
    out = path / "landscape"
    files.make_folder(out)
    folder.write_arrays(out / f"{name}.npz", landscape.arrays)
    # A number that is not finite is left out.
    table = landscape.table.replace([np.inf, -np.inf], np.nan)
    files.write_text(out / f"{name}.csv", to_csv(table))
    figures = path / "figures"
    files.make_folder(figures)
    pictures = []
    for suffix, figure in landscape.figures.items():
        stem = f"landscape_{name}{suffix}"
        save_figure(figure, figures / stem)
        pictures.append(f"{figures}/{stem}.png")
    # The page of the run shows its figures.
    write_run_report(path)
    return f"{landscape.text}\nsee {out}/{name}.csv and {', '.join(pictures)}"
