"""The page of a comparison: its answer, two figures, and tables that are folded."""

from collections.abc import Sequence
from pathlib import Path

from pfljax.report.html import Block
from pfljax.report.lead import EMPTY, format_number
from pfljax.report.run_page import origin_pairs, run_notices
from pfljax.report.seeds import (
    OF_A_RUN,
    Group,
    differing_problem,
    differing_settings,
)
from pfljax.report.settings import problem_facts, settings_by_group, value_text
from pfljax.report.tables import Table
from pfljax.runs.config import to_json
from pfljax.runtime.words import count_noun


def comparison_notices(
    groups: Sequence[Group], unfinished: Sequence[Path], columns: str | None = None
) -> list[str]:
    """Sentences that a reader has to know before the numbers.

    Within `columns`, a setting, the methods are compared.
    """
    notices = []
    for group in groups:
        for run in group.runs:
            notices += run_notices(run, f"{group.label}, seed {run.experiment.seed},")
    problem = [name for name in differing_problem(groups) if name != columns]
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
        notices.append(f"These runs failed or are unfinished, and left out: {texts}.")
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
    rows = []
    for label, run in [(group.label, run) for group in groups for run in group.runs]:
        costs = run.environment
        parameters = run.summary.get("parameters") or {}
        row = {
            "Method": label,
            "Seed": str(run.experiment.seed),
            "Folder": run.folder.name,
            "Data": run.partition["sha256"][:12],
            "Devices": ", ".join(costs.get("devices", [])),
            "Training (s)": format_number(costs.get("seconds"), ",.1f"),
            "Most memory (MB)": format_number(costs.get("peak_bytes"), ",.1f", 1e-6),
            "Trained parameters": format_number(parameters.get("trained"), ","),
            "Step (MFLOP)": format_number(run.summary.get("step_flops"), ",.1f", 1e-6),
            "Command": str(costs.get("command", EMPTY)),
        }
        rows.append(row)
    return Table("Runs", list(rows[0]), [list(row.values()) for row in rows])
