"""Landscapes of a finished run: the command `pfljax landscape RUN --kind KIND`.

RUN/landscape/NAME.npz          arrays, below
RUN/landscape/NAME.csv          the same as a table
RUN/figures/landscape_NAME*.*   PNG and PDF, which RUN/report.html shows from then on

NAME is the kind, followed by the options that say what is shown, such as
line_other-y_rows-all. A landscape that was interrupted lies in NAME.blocks.npz.

Axes of the arrays; an axis has the name of the array with its positions:

line         METRIC [client, t]; ensemble/METRIC, cosine, distance [client]
curve        curve/METRIC, straight line/METRIC [t]; METRIC [alpha, beta]
pairs        METRIC barrier, cosine, distance, disagreement, CKA [ids, ids];
             line/METRIC [pair, t]
plane        METRIC [alpha, beta]
hessian      METRIC [alpha, beta]; spectrum/density [spectrum/grid]
curvature    all [client]; with layers also QUANTITY/LAYER
training     METRIC [alpha, beta], the plane; METRIC barrier [round]
over-rounds  METRIC barrier to the server [round, ids]; between clients [round, pair]
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.requirements import require_known
from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.evaluation.metrics import METRICS
from pfljax.landscape.finished import Finished
from pfljax.landscape.kinds import (
    curvatures,
    lines,
    pairs,
    rounds,
    surfaces,
)
from pfljax.landscape.kinds.blocks import Store
from pfljax.landscape.kinds.record import Landscape
from pfljax.report import write_run_report
from pfljax.report.captions import CAPTIONS
from pfljax.report.frames import to_csv
from pfljax.report.style import save_figure
from pfljax.runs import config, folder
from pfljax.runs.landscape_options import ROWS, LandscapeOptions
from pfljax.runtime import files

NAMELESS = ("kind", "points", "tolerance")  # these do not say what is shown


class Kind(NamedTuple):
    """A kind of landscape of a run."""

    compute: Callable[[Finished, LandscapeOptions, Store], Landscape]
    defaults: dict[str, Any]  # of the options that it takes


LINE = {"points": 11, "range": None, "rows": "own", "metric": None}
PLANE = {"metric": "loss", "range": None, "rows": "all", "seed": 0, "through": ()}
ENDS = {"other": None, "endpoints": False, "align": False, "statistics": None}
KINDS: dict[str, Kind] = {
    "line": Kind(lines.compute_lines, {**LINE, **ENDS, "tolerance": 0.01}),
    "curve": Kind(surfaces.compute_curve, {**LINE, "seed": 0, "through": ()}),
    "pairs": Kind(
        pairs.compute_pairs, {"points": 11, "rows": "own", "align": False, "seed": 0}
    ),
    "plane": Kind(surfaces.compute_plane, {**PLANE, "points": 21}),
    "hessian": Kind(surfaces.compute_hessian, {**PLANE, "points": 21}),
    "curvature": Kind(
        curvatures.compute_curvature, {"rows": "train", "seed": 0, "layers": False}
    ),
    "training": Kind(
        rounds.compute_training, {"points": 11, "rows": "all", "metric": "loss"}
    ),
    "over-rounds": Kind(
        rounds.compute_over_rounds, {"points": 11, "rows": "own", "through": ()}
    ),
}


def write_landscape(
    path: str | Path,
    kind: str = "line",
    *,
    federation: Federation | None = None,
    task: Task | None = None,
    **options: Any,
) -> str:
    """Computes and writes a landscape of a run, and returns a text to print.

    Args:
      path: the run folder.
      kind: one of `KINDS`.
      federation, task: those that were given to the run in Python.
      options: as `pfljax landscape --help` lists them, such as `rows="all"`.

    Raises:
      ValueError: the kind is unknown, an option is wrong or does not belong to this
        kind, or the kind does not fit the run.
    """
    path = Path(path)
    wanted = LandscapeOptions(kind, **options)
    asked = check_options(path, wanted)
    run = Finished(path, federation, task)
    name = name_files(path, wanted)
    unfinished = path / "landscape" / f"{name}.blocks.npz"
    state = f"{config.digest(run.experiment)} {int(run.state.round)} {asked}"
    result = KINDS[kind].compute(run, asked, Store(unfinished, state))
    text = _write(path, name, wanted, result)
    unfinished.unlink(missing_ok=True)
    return text


def run_line(
    path: str | Path,
    *,
    federation: Federation | None = None,
    task: Task | None = None,
    **options: Any,
) -> lines.RunLine:
    """The lines of `write_landscape`, which it would write: C of them, one a client.

    Without options they go from the server's model to each client's personal model.
    Clients that never took part may have two equal ends: their line is a point.

    Raises:
      ValueError, FolderError: as in `write_landscape`.
    """
    asked = check_options(Path(path), LandscapeOptions(**options))
    return lines.measure(Finished(path, federation, task), asked, Store())


def check_options(path: Path, options: LandscapeOptions) -> LandscapeOptions:
    """The options with the defaults of their kind in place of None."""
    kind = options.kind
    require_known("kind", kind, KINDS)
    defaults = KINDS[kind].defaults
    unset = vars(LandscapeOptions(kind))
    given = {name: v for name, v in vars(options).items() if v != unset[name]}
    for name in given.keys() - defaults.keys():
        raise ValueError(
            f"{name} is not an option of the kind {kind!r}, which takes "
            f"{', '.join(sorted(defaults))}; leave it out"
        )
    options = options.replace(**(defaults | given))
    if options.other is not None:
        other = Path(options.other)
        options = options.replace(other=other)
        if other.resolve() == path.resolve():
            raise ValueError(f"other is {path} itself; choose another run, or none")
        if options.endpoints:
            raise ValueError("endpoints and other name the same ends; give one of them")
    if not (options.tolerance or 0) >= 0:
        raise ValueError(f"tolerance is {options.tolerance}; expected 0 or more")
    if options.rows is not None:
        require_known("rows", options.rows, ROWS)
    if options.metric is not None:
        require_known("metric", options.metric, METRICS)
    return options


def name_files(path: Path, options: LandscapeOptions) -> str:
    """The name of the files: the kind, and the options that say what is shown."""
    words = [options.kind]
    for name, values in _list_options(path, options).items():
        text = ("..." if name == "range" else "-").join(values)
        words.append(re.sub(r"[^A-Za-z0-9.=-]", "", f"{name}-{text}").rstrip("-"))
    return "_".join(words)


def _list_options(path: Path, options: LandscapeOptions) -> dict[str, list[str]]:
    """The options that say what is shown, as texts; [] stands for True."""
    found = {}
    for name, value in vars(options).items():
        if name in NAMELESS or not value:
            continue
        values: Iterable[Any] = value if isinstance(value, tuple | list) else (value,)
        if name == "other":
            # From beside the run, so that two runs called s0 have two names.
            parts = Path(os.path.relpath(str(value), path.parent)).parts
            values = [part for part in parts if part != ".."]
        found[name] = [] if value is True else [str(value) for value in values]
    return found


def _write(
    path: Path, name: str, options: LandscapeOptions, landscape: Landscape
) -> str:
    """Writes the files of a landscape, and returns a text to print."""
    out = files.make_folder(path / "landscape")
    about = np.array(landscape.text)
    folder.write_arrays(out / f"{name}.npz", {**landscape.arrays, "about": about})
    # A number that is not finite is left out.
    table = landscape.table.replace([np.inf, -np.inf], np.nan)
    files.write_text(out / f"{name}.csv", to_csv(table))
    figures = files.make_folder(path / "figures")
    pictures = []
    asked = _list_options(path, options).items()
    words = [" ".join([f"--{option}", *values]) for option, values in asked]
    facts = landscape.facts + (f" Options: {', '.join(words)}." if words else "")
    for suffix, figure in landscape.figures.items():
        stem = f"landscape_{name}{suffix}"
        caption = f"{CAPTIONS[f'landscape_{options.kind}{suffix}']} {facts}"
        save_figure(figure, figures / stem, caption=caption)
        pictures.append(f"{figures}/{stem}.png")
    # The page of the run shows its figures.
    write_run_report(path)
    return f"{landscape.text}\nsee {out}/{name}.csv and {', '.join(pictures)}"
