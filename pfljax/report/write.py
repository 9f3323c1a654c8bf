"""Writes the report of a run, of a comparison of runs, and of a sweep."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pfljax.evaluation.fairness import check_targets
from pfljax.report import (
    captions,
    comparison,
    figures,
    formats,
    latex,
    notices,
    quantities,
    spent,
    sweep_pairs,
    sweep_targets,
    sweeps,
    timeline,
)
from pfljax.report.clients import CHOSEN, LAST, recorded_baselines
from pfljax.report.columns import Table
from pfljax.report.groups import Group, group_runs
from pfljax.report.html import Picture
from pfljax.report.page_comparison import comparison_page, sweep_page
from pfljax.report.page_run import run_page
from pfljax.report.paired import Paired, paired
from pfljax.report.paired_files import answer, paired_table, write_paired
from pfljax.report.read_files import read_settings
from pfljax.report.runs import Run, read_run
from pfljax.report.saved_landscapes import first_landscapes, read_landscapes
from pfljax.report.style import CSS_PIXELS, save_figure
from pfljax.report.tables import (
    calibration_table,
    comparison_table,
    fairness_table,
    once,
)
from pfljax.report.targets import target_table
from pfljax.runs.folder import check_foreign, read_json
from pfljax.runtime import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_ALL = ("last", "validation")  # tables of all clients: their arrays are kept
ATTACKED = ("benign", "malicious")  # groups of clients, where some attack
DRAW: dict[str, "Callable[[Run], Figure | None]"] = {
    "learning_curves": figures.learning_curves,
    "accuracy_histogram": figures.accuracy_histogram,
    "accuracy_by_client": figures.accuracy_by_client,
    "label_distribution": figures.label_distribution,
    "lambda_curve": figures.lambda_curve,
    "quantities_by_size": quantities.quantities_by_size,
    "accuracy_by_seconds": timeline.accuracy_by_seconds,
    "timeline": timeline.timeline,
}


def write_run_report(folder: str | Path) -> None:
    """Writes figures/*.png, figures/*.pdf and report.html into a finished run's folder.

    The page also shows the landscapes that are in figures/.

    Raises:
        ValueError: `folder` is no run, or unfinished.
        FileError: a file there is damaged, or cannot be written.
    """
    run = read_run(folder)
    groups = group_runs([run])
    last = comparison_table(groups, baselines=recorded_baselines([run]))
    tables = [fairness_table(last), target_table(groups)]
    figure_folder = files.make_folder(run.folder / "figures")
    pictures = []
    for name, draw in DRAW.items():
        figure = draw(run)
        # Not every run has what every figure shows.
        if figure is None:
            continue
        caption = captions.caption(name, run)
        picture = _save_picture(figure, figure_folder / name, caption)
        pictures.append(picture)
    pictures += read_landscapes(figure_folder)
    page = run_page(run, tables, pictures)
    files.write_text(run.folder / "report.html", page)


def write_comparison(
    folders: Sequence[str | Path],
    out: str | Path,
    targets: Sequence[float] = (),
    unfinished: Sequence[Path] = (),
) -> str:
    """Writes tables, figures and comparison.html into `out`; returns the Markdown.

    Tables: comparison_<name>.csv (means), comparison_<name>_seeds.csv (each seed), .md,
    .tex (the columns of a paper) and comparison_<name>_long.tex (all columns), for the
    last round, the round chosen on validation, and unseen clients, where the runs have
    them; fairness over clients, calibration and loss of the first two; and what is
    spent until `targets`, accuracies in (0, 1], are reached, without any those of
    `default_targets`. Which method is better is in comparison_paired.csv, .md and .tex.
    The Markdown begins with that in words. It leaves out calibration and loss, and the
    table of the round chosen on validation where that is the last round's.

    Local training that a run had as its `baseline` is read too, if it is still there.
    The page names the `unfinished` runs as left out.

    The page also shows the landscapes of the first run of each method that has some, as
    many kinds as fit.

    Raises:
        ValueError: no folder, or one is no run, unfinished or there twice; a target is
            not an accuracy.
        FileError: a file there is damaged, or cannot be written.
    """
    if not folders:
        raise ValueError("no run folder was given; give at least one")
    check_targets(targets)
    check_foreign(Path(out) / "comparison.html")
    runs = [read_run(folder) for folder in folders]
    groups = group_runs(runs)
    out = files.make_folder(Path(out))
    accuracy = _accuracy_tables(groups, recorded_baselines(runs))
    stated, repeated = once(accuracy)
    told = [*stated, *_beside(stated, fairness_table)]
    told += _with_rows([target_table(groups, targets)])
    tables = [*told, *_beside(stated, calibration_table)]
    # Files have all tables: a script need not know which are equal.
    more = [*_beside(repeated, fairness_table), *_beside(repeated, calibration_table)]
    for table in (*tables, *repeated, *more):
        _write_table(table, out)
    # Without two methods there is nothing to compare, and an empty one is not shown.
    compared = paired(accuracy[:1])
    write_paired(compared, out)
    figure_folder = files.make_folder(out / "figures")
    pictures = _comparison_pictures(runs, figure_folder)
    landscapes = first_landscapes(groups)
    said = notices.of_groups(groups, unfinished)
    page = comparison_page(groups, tables, pictures, landscapes, compared, said)
    files.write_text(out / "comparison.html", page)
    return _text(told, compared, said)


def write_sweep_report(
    folder: str | Path, out: str | Path, targets: Sequence[float] = ()
) -> str:
    """Writes tables, figure and page of a sweep into `out`; the Markdown.

    comparison_sweep.csv (means), comparison_sweep_seeds.csv, .md, .tex and _long.tex;
    the same of benign and of malicious clients where some attack, and of what is spent
    until the mean accuracy is at the `targets`, as `write_comparison`;
    and comparison_paired.csv, .md and .tex of the points in pairs, by seeds alone.

    Raises:
        ValueError: `folder` holds no finished run of a sweep, or a target is no
            accuracy.
        FileError: a file there is damaged, an older version's, or cannot be written.
    """
    check_targets(targets)
    rows = sweeps.read(folder)
    file = Path(folder) / "sweep.json"
    about = read_json(file)
    # All is read before anything is written: a folder refused leaves no trace.
    config = read_settings(file, about["experiment"])
    out = files.make_folder(Path(out))
    # Values of earlier calls are in the table too; progress is that of the last call.
    asked = about.get("asked", about["over"])
    progress = sweeps.progress(rows, asked)
    more = [sweeps.table(rows, progress, clients) for clients in ATTACKED]
    more.append(sweep_targets.target_table(rows, targets))
    tables = [sweeps.table(rows, progress), *_with_rows(more)]
    figure = sweeps.figure(rows)
    figure_folder = files.make_folder(out / "figures")
    pictures = []
    if figure is not None:
        stem = figure_folder / "accuracy"
        picture = _save_picture(figure, stem, sweeps.FIGURE, truetype=True)
        pictures.append(picture)
    for table in tables:
        _write_table(table, out)
    compared = sweep_pairs.in_pairs(rows, config["algorithm"])
    write_paired(compared, out)
    said = [progress] if progress else []
    page = sweep_page(about, config, tables, pictures, compared, said)
    files.write_text(out / "sweep.html", page)
    return _text(tables, compared, said)


def _text(tables: Sequence[Table], compared: Paired, said: Sequence[str] = ()) -> str:
    """What is `said` of runs, the answer, the tables, and last that of the pairs."""
    sentences = "".join(f"{formats.markdown_text(sentence)}\n" for sentence in said)
    parts = [sentences, answer(compared)]
    parts += [*map(_markdown, tables), paired_table(compared)]
    return "\n".join(part for part in parts if part)


def _accuracy_tables(groups: Sequence[Group], baselines: Sequence[Run]) -> list[Table]:
    """The tables that have rows."""
    # Clients that never took part are judged after the last round alone.
    kinds = (
        (LAST, "all"),
        (CHOSEN, "all"),
        (LAST, "never chosen"),
        (LAST, "unseen"),
        # Where some attack, what they end with is no aim.
        (LAST, "benign"),
        (LAST, "malicious"),
    )
    tables = []
    for at, clients in kinds:
        table = comparison_table(groups, at, clients, baselines)
        tables.append(table)
    return _with_rows(tables)


def _beside(
    accuracy: Sequence[Table], same_rows: Callable[[Table], Table]
) -> list[Table]:
    """Tables of the same rows, of all clients, with other columns."""
    tables = [same_rows(table) for table in accuracy if table.name in OF_ALL]
    # Older runs have not recorded every metric.
    return _with_rows(tables)


def _with_rows(tables: Sequence[Table]) -> list[Table]:
    return [table for table in tables if table.rows]


def _write_table(table: Table, out: Path) -> None:
    """One table in all formats."""
    stem = f"comparison_{table.name}"
    files.write_text(out / f"{stem}.csv", formats.csv_means(table))
    files.write_text(out / f"{stem}_seeds.csv", formats.csv_seeds(table))
    files.write_text(out / f"{stem}.md", _markdown(table))
    files.write_text(out / f"{stem}.tex", latex.short(table))
    files.write_text(out / f"{stem}_long.tex", latex.long(table))


def _markdown(table: Table) -> str:
    """A table below its caption."""
    return f"{table.caption}\n\n{formats.markdown(table)}"


def _comparison_pictures(runs: Sequence[Run], folder: Path) -> list[Picture]:
    """Draws and writes the figures of a comparison."""
    drawn = {
        "bars": comparison.comparison_bars(runs),
        "curves_by_round": comparison.comparison_curves(runs),
        "curves_by_bytes": comparison.comparison_curves(runs, "bytes", log=True),
        "accuracy_over_clients": comparison.comparison_clients(runs),
    }
    # One without a clock has no place on the axis.
    if all(spent.has_clock(run) for run in runs):
        drawn["curves_by_seconds"] = comparison.comparison_curves(runs, "seconds")
    pictures = []
    for name, figure in drawn.items():
        caption = comparison.CAPTIONS[name]
        picture = _save_picture(figure, folder / name, caption, truetype=True)
        pictures.append(picture)
    return pictures


def _save_picture(
    figure: "Figure", stem: Path, caption: str, truetype: bool = False
) -> Picture:
    """Saves a figure; what the page shows of it."""
    png = save_figure(figure, stem, truetype)
    width = round(CSS_PIXELS * figure.get_size_inches()[0])
    return Picture(name=stem.name, png=png, width=width, caption=caption)
