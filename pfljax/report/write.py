"""Writes the reports of runs, comparisons and sweeps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pfljax.evaluation.fairness import check_targets
from pfljax.report import (
    comparison_figures,
    comparison_page,
    figures,
    overview,
    pairs,
    sweeps,
    tables,
    tidy,
)
from pfljax.report.curves import Curve, default_targets, group_curves, spent_table
from pfljax.report.frames import Frame
from pfljax.report.groups import PROBLEM, differing_problem, group_runs
from pfljax.report.html import Block, Pairs, Picture, picture, render
from pfljax.report.key_figures import key_figures
from pfljax.report.landscapes import first_landscapes, read_landscapes
from pfljax.report.pairs import Scores
from pfljax.report.run_page import run_notices, run_page
from pfljax.report.runs import read_run
from pfljax.report.settings import settings_by_group
from pfljax.report.style import save_figure
from pfljax.report.tables import Table, make_table, values_by_seed
from pfljax.runs import config as run_config
from pfljax.runs.folder import check_foreign, read_json
from pfljax.runtime import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLIENTS = (
    "participants",
    "never chosen",
    "unseen",
    "benign",
    "malicious",
)  # with tables of their own
LEAD = ("differences", "curves_by_rounds")  # figures of the first screen
SWEEP_FIGURE = (
    "Test accuracy of the personal models at the last round, mean over clients; "
    "whiskers: ± one standard deviation over seeds."
)
WITHOUT_BASELINES = (
    "Local training and fine-tuned FedAvg are no points of this sweep. Compare a point "
    "with them by pfljax compare."
)


def write_run_report(
    folder: str | Path,
    out: str | Path | None = None,
    targets: Sequence[float] = (),
    figure_kinds: Sequence[str] = (),
) -> str:
    """Writes report.html, and figures as files of the `figure_kinds`; the screen.

    Args:
      folder: of a finished run.
      out: where to write; None is the folder of the run.
      targets: accuracies in (0, 1] until which it is counted what was spent.
      figure_kinds: such as "pdf"; the figures are in the page in any case.

    Raises:
      ValueError: `folder` is no finished run, or a target is no accuracy.
      FileError: a file is damaged, or cannot be written.
    """
    check_targets(targets)
    run = read_run(folder)
    groups = group_runs([run])
    frame = tidy.tidy(groups, tidy.recorded_baselines([run]))
    drawn = {name: draw(run) for name, (draw, _) in figures.OF_RUN.items()}
    captions = {name: caption for name, (_, caption) in figures.OF_RUN.items()}
    out = files.make_folder(Path(out or folder))
    shown = _save(drawn, captions, out, figure_kinds)
    details = _details(frame, ranked=False)
    details["Until a target"] = [_spent(group_curves(frame), targets, ranked=False)]
    page = run_page(run, details, shown, read_landscapes(run.folder))
    files.write_text(out / "report.html", page)
    cards = Table("", ["Key figure", ""], [card[:2] for card in key_figures(run)])
    return overview.screen(cards, run_notices(run, "This run"))


def write_comparison(
    folders: Sequence[str | Path],
    out: str | Path,
    targets: Sequence[float] = (),
    unfinished: Sequence[Path] = (),
    *,
    with_tables: bool = False,
    figure_kinds: Sequence[str] = (),
    verbose: bool = False,
) -> str:
    """Writes comparison.html and the tidy comparison.csv to `out`; the screen.

    Args:
      folders: of finished runs; seeds of one method are found by their settings.
      out: where to write.
      targets: accuracies in (0, 1] until which it is counted what was spent; half and
        nine tenths of the best accuracy if there are none.
      unfinished: runs to name as left out.
      with_tables: write comparison.md and comparison.tex as well.
      figure_kinds: write the figures as files of these kinds as well, such as "pdf".
      verbose: return all tables in Markdown, not the overview alone.

    Raises:
      ValueError: a folder is no finished run, or a run is given twice; a target is no
        accuracy.
      FileError: a file is damaged, or cannot be written.
    """
    if not folders:
        raise ValueError("no run folder was given; give at least one")
    check_targets(targets)
    check_foreign(Path(out) / "comparison.html")
    runs = [read_run(folder) for folder in folders]
    groups = group_runs(runs)
    frame = tidy.tidy(groups, tidy.recorded_baselines(runs))
    ranked = not differing_problem(groups)
    means = _main_means(frame)
    scores = [pairs.make_scores(g, means.get(g.label, {})) for g in groups]
    comparisons, refusals = pairs.compare(scores if ranked else [])
    curves = group_curves(frame)
    local = comparison_figures.local_label(groups)
    drawn: dict[str, Figure | None] = {
        "differences": comparison_figures.differences(comparisons),
        "curves_by_rounds": comparison_figures.draw_curves(curves, local),
        "curves_by_bytes": comparison_figures.draw_curves(curves, local, "bytes"),
        "accuracy_over_clients": comparison_figures.accuracy_over_clients(groups),
    }
    if all("clock" in run.rounds[-1] for run in runs):
        drawn["curves_by_seconds"] = comparison_figures.draw_curves(
            curves, local, "seconds"
        )
    out = files.make_folder(Path(out))
    files.write_text(out / "comparison.csv", frame.to_csv(index=False))
    report = Report(
        title="Comparison",
        facts=comparison_page.comparison_facts(groups),
        notices=[*comparison_page.comparison_notices(groups, unfinished), *refusals],
        frame=frame,
        comparisons=comparisons,
        ranked=ranked,
        spent=_spent(curves, targets, ranked),
        pictures=_save(drawn, comparison_figures.CAPTIONS, out, figure_kinds),
        more={
            "Landscapes": first_landscapes(groups),
            "Settings": comparison_page.settings_blocks(groups),
            "Data, environments and runs": comparison_page.origin_blocks(groups),
        },
    )
    return _write(report, out / "comparison.html", with_tables, verbose)


def write_sweep_report(
    folder: str | Path,
    out: str | Path,
    targets: Sequence[float] = (),
    *,
    with_tables: bool = False,
    figure_kinds: Sequence[str] = (),
    verbose: bool = False,
) -> str:
    """Writes sweep.html to `out`, from the tidy sweep.csv in `folder`; the screen.

    The options are those of `write_comparison`. Points are compared by their seeds
    alone, without clients.

    Raises:
      ValueError: `folder` has no finished run of a sweep, or a target is no accuracy.
      FileError: a file is damaged, or cannot be written.
    """
    check_targets(targets)
    rows = sweeps.read(folder)
    about = read_json(Path(folder) / "sweep.json")
    config = run_config.split_options(about["experiment"])
    over = about["over"]
    frame = sweeps.tidy(rows)
    ranked = not set(sweeps.swept_names(rows)).intersection(PROBLEM)
    baselines = sweeps.baselines(rows)
    scores = [
        Scores(method, means, is_baseline=method in baselines)
        for method, means in _main_means(frame).items()
    ]
    comparisons, refusals = pairs.compare(scores if ranked else [])
    curves = group_curves(frame)
    drawn = {
        "accuracy": sweeps.figure(rows),
        "differences": comparison_figures.differences(comparisons),
    }
    captions = comparison_figures.CAPTIONS | {"accuracy": SWEEP_FIGURE}
    progress = sweeps.progress(rows, about.get("asked", over))
    out = files.make_folder(Path(out))
    swept = {name: ", ".join(map(str, values)) for name, values in over.items()}
    settings = settings_by_group(config, without=over)
    facts = [f"{config['algorithm']} over {', '.join(over)}"]
    report = Report(
        title="Sweep",
        facts=[*facts, *comparison_page.problem_facts(config)],
        notices=[*filter(None, [progress]), *refusals],
        frame=frame,
        comparisons=comparisons,
        ranked=ranked,
        spent=_spent(curves, targets, ranked),
        pictures=_save(drawn, captions, out, figure_kinds),
        more={"Settings": [Pairs(swept, "Swept"), *settings]},
        advice=[] if baselines else [WITHOUT_BASELINES],
    )
    return _write(report, out / "sweep.html", with_tables, verbose)


class Report(NamedTuple):
    """What the page and the screen of a comparison or a sweep show."""

    title: str
    facts: Sequence[str]
    notices: Sequence[str]
    frame: Frame  # tidy
    comparisons: Frame
    ranked: bool  # whether the numbers are of one problem
    spent: Table
    pictures: Sequence[Picture]
    more: Mapping[str, Sequence[Block]]
    advice: Sequence[str] = ()


def _write(report: Report, page: Path, with_tables: bool, verbose: bool) -> str:
    """Writes the page, and the tables if asked for; the screen."""
    methods = overview.overview(report.frame, report.comparisons)
    sentences = []
    if len(report.comparisons):
        sentences = overview.answer(methods, report.comparisons)
    first = overview.overview_table(methods)
    differences = comparison_page.pair_table(report.comparisons)
    details = _details(report.frame, report.ranked)
    lead = [p for p in report.pictures if p.name in LEAD]
    rest = [p for p in report.pictures if p.name not in LEAD]
    folded: dict[str, Sequence[Block]] = {
        "Differences in pairs": [differences],
        **details,
        "Until a target": [report.spent],
        "More figures": rest,
        **report.more,
    }
    files.write_text(
        page,
        render(
            report.title,
            report.facts,
            report.notices,
            [*sentences, first, *report.advice, *lead],
            folded,
        ),
    )
    every = [first, differences, *(t for ts in details.values() for t in ts)]
    every = [table for table in [*every, report.spent] if table.rows]
    if with_tables:
        for end, form in ((".md", tables.markdown), (".tex", tables.latex)):
            files.write_text(page.with_suffix(end), "\n".join(map(form, every)))
    if verbose:
        sentences = [*report.notices, *sentences]
        return "\n\n".join([*sentences, *map(tables.markdown, every)])
    shown = overview.overview_table(methods, overview.MOST_ROWS)
    hidden = len(first.rows) - len(shown.rows)
    return overview.screen(shown, [*report.notices, *sentences], hidden)


def _details(frame: Frame, ranked: bool) -> dict[str, list[Table]]:
    """The tables of all models: accuracy, calibration and fairness."""
    moments = {"last": "the last round"}
    # Where all runs chose their last round, one table stands for both.
    if not frame[frame.chosen.eq(True) & ~frame["last"]].empty:
        moments["chosen"] = "the round chosen on validation data"
    sections = {
        "Accuracy": (tables.ACCURACY, tables.ACCURACY_NOTE),
        "Fairness": (tables.FAIRNESS, tables.FAIRNESS_NOTE),
        "Calibration and loss": (tables.CALIBRATION, tables.CALIBRATION_NOTE),
    }
    details = {}
    for section, (columns, note) in sections.items():
        details[section] = [
            make_table(
                f"{section} at {text}",
                values_by_seed(frame, moment=moment),
                columns,
                note,
                ranked,
            )
            for moment, text in moments.items()
        ]
    known = set(frame[frame["last"]].clients)
    validation = values_by_seed(frame, split="validation")
    details["Accuracy"] += [
        make_table(
            "Accuracy at the last round on validation data",
            validation,
            tables.ACCURACY,
            ranked=ranked,
        ),
        *(
            make_table(
                f"Accuracy at the last round, clients: {clients}",
                values_by_seed(frame, clients),
                tables.ACCURACY,
                ranked=ranked,
            )
            for clients in CLIENTS
            if clients in known
        ),
    ]
    return details


def _main_means(frame: Frame) -> dict[str, dict[int, float]]:
    """The final accuracy of the main models, by method and seed."""
    rows = frame[frame["last"] & frame.main & (frame.metric == "accuracy")]
    rows = rows[(rows.clients == "all") & (rows.split == "test")]
    rows = rows[rows["mean"].notna()]
    means: dict[str, dict[int, float]] = {}
    for row in rows.to_dict("records"):
        means.setdefault(row["method"], {})[int(row["seed"])] = float(row["mean"])
    return means


def _spent(
    curves: Mapping[str, Mapping[int, Curve]], targets: Sequence[float], ranked: bool
) -> Table:
    """What is spent until targets; without rows if no run has two evaluations."""
    targets = sorted(set(targets or default_targets(curves)))
    values = spent_table(curves, targets)
    if values["area"].isna().all():
        return Table("", [], [])
    columns = tables.spent_columns(targets)
    return make_table("Until a target", values, columns, tables.SPENT_NOTE, ranked)


def _save(
    drawn: "Mapping[str, Figure | None]",
    captions: Mapping[str, str],
    out: Path,
    kinds: Sequence[str],
) -> list[Picture]:
    """The figures as pictures of a page, and as files of these kinds."""
    pictures = []
    for name, figure in drawn.items():
        if figure is None:
            continue
        pictures.append(picture(name, figure, captions[name]))
        if kinds:
            save_figure(figure, files.make_folder(out / "figures") / name, kinds)
    return pictures
