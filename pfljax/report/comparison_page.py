"""The page of a comparison: its answer, two figures, and tables that are folded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pfljax.evaluation.significance import ENOUGH
from pfljax.report.frames import Frame
from pfljax.report.groups import (
    OF_A_RUN,
    Group,
    differing_problem,
    differing_settings,
)
from pfljax.report.html import Block
from pfljax.report.run_page import origin_pairs, run_notices
from pfljax.report.runs import number
from pfljax.report.settings import settings_by_group, value_text
from pfljax.report.tables import EMPTY, Column, Table, keep_known
from pfljax.runs import names
from pfljax.runs.config import to_json
from pfljax.runtime.words import count_noun

FACTS = ("dataset", "partition", "model", "models")
PAIR_COLUMNS = (
    Column("difference", "Difference (points)", 100, "+.2f"),
    Column("p_holm", "p after Holm", 1, ".3g"),
    Column("low", "95 % from", 100, ".2f"),
    Column("high", "to", 100, ".2f"),
    Column("p", "p", 1, ".3g"),
    Column("p_wilcoxon", "p (Wilcoxon, seeds)", 1, ".3g"),
    Column("p_clients", "p (Wilcoxon, clients)", 1, ".3g"),
    Column("win", "Clients win", 1, ".0f"),
    Column("tie", "tie", 1, ".0f"),
    Column("lose", "lose", 1, ".0f"),
    Column("seeds", "Seeds", 1, ".0f"),
    Column("needed", "Seeds to decide", 1, ".0f"),
)
PAIR_NOTE = (
    "Differences in test accuracy between the main models at the last round, on the "
    "same clients, data and seeds. The method with the greater mean is named first. "
    "The p-value after Holm's correction says whether another seed would give the same "
    f"answer: from {ENOUGH} seeds on it comes from Student's t over the means of the "
    "seeds, and with fewer seeds from a moderated t that also uses the clients "
    "(evaluation/significance.py). The correction is applied once over the comparisons "
    "with the best method and once over the others. The interval is that of the "
    "uncorrected test. Wilcoxon's test over clients asks whether these clients gain, "
    "and says nothing about other seeds. The last column is the number of seeds that "
    "would find this difference in 80 % of cases; a dash means more than 100."
)


def pair_table(comparisons: Frame) -> Table:
    """The comparisons as text."""
    columns = keep_known(comparisons, PAIR_COLUMNS)
    rows = [
        [f"{row['method']} against {row['against']}"]
        + [column.text(number(row[column.key])) for column in columns]
        for row in comparisons.to_dict("records")
    ]
    header = ["Comparison", *(column.title for column in columns)]
    return Table("Differences in pairs", header, rows, note=PAIR_NOTE)


def comparison_notices(
    groups: Sequence[Group], unfinished: Sequence[Path]
) -> list[str]:
    """Sentences that a reader has to know before the numbers."""
    notices = []
    for group in groups:
        for run in group.runs:
            notices += run_notices(run, f"{group.label}, seed {run.experiment.seed},")
    problem = differing_problem(groups)
    if problem:
        notices.append(
            f"The methods are not compared: the runs differ in {', '.join(problem)}."
        )
    elif len(groups) == 1:
        notices.append(
            f"There is nothing to compare with {groups[0].label}, the only method."
        )
    lengths = sorted({run.rounds for group in groups for run in group.runs})
    if len(lengths) > 1:
        texts = ", ".join(map(str, lengths))
        notices.append(f"The runs have different numbers of rounds: {texts}.")
    if unfinished:
        texts = ", ".join(map(str, unfinished))
        notices.append(f"These runs are not finished and left out: {texts}.")
    return notices


def comparison_facts(groups: Sequence[Group]) -> list[str]:
    """The number of methods and runs, and what all runs share."""
    runs = [run for group in groups for run in group.runs]
    seeds = sorted({run.experiment.seed for run in runs})
    differing = differing_settings(groups)
    settings = to_json(groups[0].experiment)
    shared = {name: settings[name] for name in settings if name not in differing}
    return [
        count_noun(len(groups), "method"),
        count_noun(len(runs), "run"),
        f"seeds {', '.join(map(str, seeds))}",
        *problem_facts(shared),
    ]


def problem_facts(settings: Mapping[str, Any]) -> list[str]:
    """The data and the model, as far as `settings` has them."""
    return [
        f"{name} {names.short(value_text(name, settings[name]))}"
        for name in FACTS
        if settings.get(name)
    ]


def settings_blocks(groups: Sequence[Group]) -> list[Block]:
    """The settings that differ between methods, and those that all runs share."""
    differing = differing_settings(groups)
    rows = []
    for group in groups if differing else ():
        settings = to_json(group.experiment)
        cells = [value_text(name, settings[name]) for name in differing]
        rows.append([group.label, *cells])
    table = Table("Settings that differ", ["Method", *differing], rows)
    unshared = {*differing, *OF_A_RUN}
    shared = settings_by_group(to_json(groups[0].experiment), without=unshared)
    return [table, *shared]


def origin_blocks(groups: Sequence[Group]) -> list[Block]:
    """Every run, and the data and environment of the first one."""
    first = groups[0].runs[0]
    return [_run_table(groups), *origin_pairs(first, f" of {first.folder.name}")]


def _run_table(groups: Sequence[Group]) -> Table:
    columns = (
        Column("seconds", "Training (s)", 1, ",.1f"),
        Column("peak_bytes", "Most memory (MB)", 1e-6, ",.1f"),
        Column("step_flops", "Step (MFLOP)", 1e-6, ",.1f"),
    )
    rows = []
    for group in groups:
        for run in group.runs:
            costs = {**run.environment, "step_flops": run.summary.get("step_flops")}
            cells = [column.text(number(costs.get(column.key))) for column in columns]
            command = str(run.environment.get("command", EMPTY))
            rows.append(
                [
                    group.label,
                    str(run.experiment.seed),
                    run.folder.name,
                    run.partition["sha256"][:12],
                    ", ".join(run.environment.get("devices", [])),
                    *cells,
                    command,
                ]
            )
    titles = [column.title for column in columns]
    header = ["Method", "Seed", "Folder", "Data", "Devices", *titles, "Command"]
    return Table("Runs", header, rows)
