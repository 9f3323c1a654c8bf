"""Writes the reports of runs and comparisons, of which a sweep is one."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pfljax.evaluation.fairness import WINDOW, check_targets
from pfljax.report import (
    comparison_figures,
    comparison_page,
    figures,
    markup,
    overview,
    pairs,
    sweeps,
    tables,
)
from pfljax.report.captions import NOTES
from pfljax.report.frames import Frame, make_frame, to_csv
from pfljax.report.html import Block, Picture, picture, render
from pfljax.report.key_figures import key_figures
from pfljax.report.landscapes import first_landscapes, read_landscapes
from pfljax.report.lead import Lead, find_lead, read_lead
from pfljax.report.run_page import run_notices, run_page
from pfljax.report.seeds import Group, differing_problem, group_runs
from pfljax.report.style import Figure, save_figure
from pfljax.report.tables import Table
from pfljax.report.tidy import main_means, tidy
from pfljax.runs.folder import check_not_own
from pfljax.runs.result import Result, result
from pfljax.runtime import files

LEAD = (
    "accuracy",
    "accuracy_map",
    "differences",
    "curves_by_rounds",
)  # figures of the first screen


def write_run_report(
    folder: str | Path,
    out: str | Path | None = None,
    targets: Sequence[float] = (),
    figure_kinds: Sequence[str] = (),
    target_window: int = WINDOW,
    with_tables: bool = False,
) -> str:
    """Writes report.html, and figures as files of the `figure_kinds`.

    Args:
      folder: of a finished run.
      out: where to write; None is the folder of the run.
      targets: values of the metric until which it is counted what was spent.
      figure_kinds: such as "pdf"; the figures are in the page in any case.
      target_window: evaluations in a row whose mean has to reach a target.
      with_tables: write clients.csv as well, the metrics of each client in every
        evaluated round; see `Result.frame`.

    Returns:
      The text for the screen.

    Raises:
      ValueError: a target is not a value of the metric.
      FileError: `folder` is not a finished run, or a file is damaged or cannot be
        written.
    """
    run = result(folder)
    lead = find_lead([run])
    check_targets(targets, target_window, lead.name)
    frame = tidy(group_runs([run]))
    drawn = {draw.__name__: draw(run) for draw in figures.OF_RUN}
    out = files.make_folder(Path(out or folder))
    pictures = _save_figures(drawn, out, figure_kinds, lead)
    details = tables.detail_tables(frame, targets, target_window, ranked=False)
    page = run_page(run, details, pictures, read_landscapes(run.folder))
    files.write_text(out / "report.html", page)
    if with_tables:
        files.write_text(out / "clients.csv", to_csv(run.frame()))
    rows = [list(card[:2]) for card in key_figures(run)]
    notices = run_notices(run, "This run")
    if targets:
        [reached] = details["Until a target"]
        rows += map(list, zip(reached.header[2:-2], reached.rows[0][2:-2], strict=True))
        notices.append(reached.note)
    return overview.screen(Table("", ["Key figure", ""], rows), notices)


def write_comparison(
    folders: Sequence[str | Path],
    out: str | Path,
    targets: Sequence[float] = (),
    unfinished: Sequence[Path] = (),
    *,
    with_tables: bool = False,
    figure_kinds: Sequence[str] = (),
    verbose: bool = False,
    target_window: int = WINDOW,
    columns: str | None = None,
) -> str:
    """Writes comparison.html and the tidy comparison.csv to `out`.

    Args:
      folders: of finished runs; seeds of one method are found by their settings.
      out: where to write.
      targets: values of the metric until which it is counted what was spent; half and
        nine tenths of the best if there are none.
      unfinished: runs to name as left out.
      with_tables: write comparison.md and comparison.tex as well.
      figure_kinds: write the figures as files of these kinds as well, such as "pdf".
      verbose: return all tables in Markdown, not the overview alone.
      target_window: evaluations in a row whose mean has to reach a target.
      columns: a setting or option whose values are the columns of a table that comes
        first. By default the setting of the data that a sweep is over, if it is one.

    Returns:
      The text for the screen.

    Raises:
      ValueError: a run is given twice, runs have no metric in common, a target is no
        value of it, or the runs do not differ in `columns`.
      FileError: a folder is not a finished run, or a file is damaged or cannot be
        written.
    """
    if not folders:
        raise ValueError("no run folder was given; give at least one")
    check_not_own(Path(out) / "comparison.html")
    groups = group_runs([result(folder) for folder in folders])
    lead = find_lead([run for group in groups for run in group.runs])
    check_targets(targets, target_window, lead.name)
    out = files.make_folder(Path(out))
    report = _compare(groups, sweeps.read_axes(folders), columns, unfinished)
    files.write_text(out / "comparison.csv", to_csv(report.frame))
    if report.table is not None and with_tables:
        by_column = make_frame(report.table.rows, report.table.header)
        files.write_text(out / "columns.csv", to_csv(by_column))
    page = out / "comparison.html"
    return _write(
        report, page, targets, target_window, with_tables, figure_kinds, verbose
    )


def _compare(
    groups: Sequence[Group],
    over: sweeps.Over,
    columns: str | None,
    unfinished: Sequence[Path],
) -> "Report":
    """The report of runs; `over` are the axes of their sweep, if they are of one."""
    frame = tidy(groups)
    lead = read_lead(frame)
    means = main_means(frame)
    columns = columns or sweeps.default_columns(over)
    table, sentences = sweeps.summarise(groups, frame, columns, over)
    return Report(
        facts=comparison_page.comparison_facts(groups),
        notices=comparison_page.comparison_notices(groups, unfinished, columns),
        frame=frame,
        scores=[pairs.make_scores(g, means.get(g.label, {}), lead) for g in groups],
        ranked=not differing_problem(groups),
        table=table,
        sentences=sentences,
        figures={
            **sweeps.figures(groups, frame, over),
            **comparison_figures.draw_comparison(groups, frame),
        },
        more={
            "Landscapes": first_landscapes(groups),
            "Settings": comparison_page.settings_blocks(groups),
            "Data, environments and runs": comparison_page.origin_blocks(groups),
        },
    )


def accuracy_table(runs: Sequence[Result]) -> str:
    """Markdown: the metrics after the last round, over seeds."""
    frame = tidy(group_runs(runs))
    lead = read_lead(frame)
    columns = {each.key: each for each in tables.list_columns(lead)}
    for each in tables.list_others(frame, lead):
        columns.setdefault(each.key, each)
    values = tables.values_by_seed(frame)
    title = "Test metrics at the last round"
    note = NOTES["Lead"]
    return markup.markdown(tables.make_table(title, values, [*columns.values()], note))


class Report(NamedTuple):
    """The content of the page and the screen of a comparison."""

    facts: Sequence[str]
    notices: Sequence[str]
    frame: Frame  # tidy
    scores: Sequence[pairs.Scores]
    ranked: bool  # whether the numbers are of one problem
    table: Table | None  # by columns, before the others
    sentences: Sequence[str]  # of the answer, beside those on the best method
    figures: Mapping[str, Figure | None]  # by name, beside that of differences
    more: Mapping[str, Sequence[Block]]


def _write(
    report: Report,
    page: Path,
    targets: Sequence[float],
    target_window: int,
    with_tables: bool,
    figure_kinds: Sequence[str],
    verbose: bool,
) -> str:
    """Writes the page, and tables and figures if asked for. Returns the screen."""
    lead = read_lead(report.frame)
    comparisons, refusals = pairs.compare(report.scores if report.ranked else [])
    notices = [*report.notices, *refusals]
    with_best = comparisons[comparisons.with_best.eq(True)]
    methods = overview.average_seeds(report.frame, with_best)
    answer = overview.answer(methods, with_best, lead)
    answer += [*report.sentences, *overview.describe_seeds(report.frame)]
    first = overview.overview_table(methods, lead)
    leading = [first] if report.table is None else [report.table, first]
    sections = {
        "Differences in pairs": [pairs.pair_table(comparisons, lead)],
        **tables.detail_tables(report.frame, targets, target_window, report.ranked),
    }
    drawn = {"differences": comparison_figures.differences(with_best, lead)}
    drawn |= report.figures
    pictures = _save_figures(drawn, page.parent, figure_kinds, lead)
    drawn_first = [each for each in pictures if each.name in LEAD]
    rest = [each for each in pictures if each.name not in LEAD]
    opened: list[Block] = [" ".join(answer), *leading, *drawn_first]
    folded: dict[str, Sequence[Block]] = {**sections, "More figures": rest}
    folded |= report.more
    files.write_text(page, render("Comparison", report.facts, notices, opened, folded))
    every = [*leading, *itertools.chain(*sections.values())]
    every = [table for table in every if table.rows]
    if with_tables:
        for end, form in ((".md", markup.markdown), (".tex", markup.latex)):
            files.write_text(page.with_suffix(end), "\n".join(map(form, every)))
    if verbose:
        return "\n\n".join([*notices, *answer, *map(markup.markdown, every)])
    shown = report.table or overview.overview_table(methods, lead, overview.MOST_ROWS)
    return overview.screen(shown, [shown.caption, *notices, *answer])


def _save_figures(
    drawn: Mapping[str, Figure | None],
    out: Path,
    kinds: Sequence[str],
    lead: Lead,
) -> list[Picture]:
    """The figures as pictures of a page, and as files of these kinds."""
    pictures = []
    for name, figure in drawn.items():
        if figure is None:
            continue
        pictures.append(picture(name, figure, lead))
        if kinds:
            stem = name.replace("accuracy", lead.name)
            save_figure(figure, files.make_folder(out / "figures") / stem, kinds)
    return pictures
