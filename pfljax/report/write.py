"""Writes the report of a run, and of a comparison of runs."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pfljax.report import comparison, figures, formats, sweeps
from pfljax.report.columns import Table
from pfljax.report.html import Picture
from pfljax.report.page_comparison import comparison_page, sweep_page
from pfljax.report.page_run import run_page
from pfljax.report.read_files import read_object, read_png
from pfljax.report.runs import Group, Run, group_runs, read_run
from pfljax.report.style import DPI, save_figure
from pfljax.report.tables import CHOSEN, LAST, calibration_table, comparison_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS = 86  # of CSS, an inch of a figure
CALIBRATED = ("last", "validation")
LANDSCAPES = 3_000_000  # bytes of PNG in a comparison; a page stays under 5 MB
DRAW: dict[str, "Callable[[Run], Figure | None]"] = {
    "learning_curves": figures.learning_curves,
    "accuracy_histogram": figures.accuracy_histogram,
    "accuracy_by_client": figures.accuracy_by_client,
    "label_distribution": figures.label_distribution,
    "lambda_curve": figures.lambda_curve,
}


def write_run_report(folder: str | Path) -> None:
    """Writes figures/*.png, figures/*.pdf and report.html into a finished run's folder.

    The page also shows the landscapes that are in figures/.

    Raises:
        ValueError: `folder` is no run, unfinished or damaged.
    """
    run = read_run(folder)
    place = _made(run.folder / "figures")
    drawn = {name: draw(run) for name, draw in DRAW.items()}
    pictures = [
        _picture(figure, place / name, figures.caption(name, run))
        for name, figure in drawn.items()
        if figure is not None
    ]
    pictures += _landscapes(place)
    _write(run.folder / "report.html", run_page(run, pictures))


def write_comparison(folders: Sequence[str | Path], out: str | Path) -> str:
    """Writes tables, figures and comparison.html into `out`; returns the Markdown.

    Tables: comparison_<name>.csv (means), comparison_<name>_seeds.csv (each seed), .md
    and .tex for the last round, the round chosen on validation, and unseen clients,
    where the runs have them; calibration and loss of the first two, which the Markdown
    leaves out.

    The page also shows the landscapes of the first run of each method that has some, as
    many kinds as fit.

    Raises:
        ValueError: no folder, or one is no run, unfinished, damaged or there twice.
    """
    if not folders:
        raise ValueError("no run folder was given; give at least one")
    runs = [read_run(folder) for folder in folders]
    groups = group_runs(runs)
    out = _made(Path(out))
    tables = _tables(groups)
    told = [calibration_table(table) for table in tables if table.name in CALIBRATED]
    told = [*tables, *(table for table in told if table.rows)]
    for table in told:
        _write_table(table, out)
    pictures = _comparison_pictures(runs, _made(out / "figures"))
    page = comparison_page(groups, told, pictures, _compared_landscapes(groups))
    _write(out / "comparison.html", page)
    return "\n".join(
        f"{table.caption}\n\n{formats.markdown(table)}" for table in tables
    )


def write_sweep_report(folder: str | Path, out: str | Path) -> str:
    """Writes table, figure and page of a sweep into `out`; the Markdown.

    comparison_sweep.csv (means), comparison_sweep_seeds.csv, .md and .tex.

    Raises:
        ValueError: `folder` holds no finished run of a sweep.
    """
    rows, out = sweeps.read(folder), _made(Path(out))
    about = read_object(Path(folder) / "sweep.json")
    told = sweeps.progress(rows, about.get("asked", about["over"]))
    table, figure = sweeps.table(rows, told), sweeps.figure(rows)
    _write_table(table, out)
    place = _made(out / "figures") / "accuracy"
    pictures = [_picture(figure, place, sweeps.FIGURE, truetype=True)] if figure else []
    _write(out / "sweep.html", sweep_page(about, table, pictures))
    return f"{table.caption}\n\n{formats.markdown(table)}"


def _tables(groups: Sequence[Group]) -> list[Table]:
    """The tables that have rows."""
    kinds = ((LAST, "all"), (CHOSEN, "all"), (LAST, "never chosen"), (LAST, "unseen"))
    tables = [comparison_table(groups, at, clients) for at, clients in kinds]
    return [table for table in tables if table.rows]


def _write_table(table: Table, out: Path) -> None:
    """One table in all formats."""
    stem = f"comparison_{table.name}"
    _write(out / f"{stem}.csv", formats.csv_means(table))
    _write(out / f"{stem}_seeds.csv", formats.csv_seeds(table))
    _write(out / f"{stem}.md", f"{table.caption}\n\n{formats.markdown(table)}")
    _write(out / f"{stem}.tex", formats.latex(table))


def _comparison_pictures(runs: Sequence[Run], place: Path) -> list[Picture]:
    """Draws and writes the figures of a comparison."""
    drawn = {
        "bars": comparison.comparison_bars(runs),
        "curves_by_round": comparison.comparison_curves(runs),
        "curves_by_bytes": comparison.comparison_curves(runs, "bytes", log=True),
        "accuracy_over_clients": comparison.comparison_clients(runs),
    }
    return [
        _picture(figure, place / name, comparison.CAPTIONS[name], truetype=True)
        for name, figure in drawn.items()
    ]


def _picture(
    figure: "Figure", stem: Path, caption: str, truetype: bool = False
) -> Picture:
    """Saves a figure; what the page shows of it."""
    png = save_figure(figure, stem, truetype)
    width = round(PIXELS * figure.get_size_inches()[0])
    return Picture(stem.name, png, width, caption)


def _landscapes(place: Path) -> list[Picture]:
    """What `pfljax landscape` drew; a picture that is not whole is left out."""
    found = []
    for file in sorted(place.glob("landscape_*.png")):
        png, pixels = read_png(file)
        caption = figures.landscape_caption(file.stem.removeprefix("landscape_"))
        if pixels:
            found.append(Picture(file.stem, png, round(PIXELS * pixels / DPI), caption))
    return found


def _compared_landscapes(groups: Sequence[Group]) -> list[Picture]:
    """Those of the first run of each method that has some, kind by kind.

    As many whole kinds as fit into a page.
    """
    found = []
    for group in groups:
        own = ((run, _landscapes(run.folder / "figures")) for run in group.runs)
        run, pictures = next(((r, p) for r, p in own if p), (group.runs[0], []))
        whose = f"{group.label}, seed {run.config['seed']}"
        found += [p._replace(caption=f"{whose}. {p.caption}") for p in pictures]
    kinds: dict[str, list[Picture]] = {}
    for picture in found:
        kinds.setdefault(picture.name, []).append(picture)
    sizes = itertools.accumulate(sum(len(p.png) for p in k) for k in kinds.values())
    fitting = zip(kinds.values(), sizes, strict=True)
    return [p for kind, size in fitting if size <= LANDSCAPES for p in kind]


def _made(folder: Path) -> Path:
    """`folder`, made where it was missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(path: Path, text: str) -> None:
    """`text` as UTF-8."""
    path.write_text(text, encoding="utf-8")
