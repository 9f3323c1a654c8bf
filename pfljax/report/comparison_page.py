"""The page of a comparison: its answer, two figures, and tables that are folded."""

from collections.abc import Callable, Mapping, Sequence
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
from pfljax.report.html import Block, format_value
from pfljax.report.run_page import run_notices
from pfljax.report.runs import Run
from pfljax.report.settings import settings_by_group, value_text
from pfljax.report.tables import EMPTY, Table
from pfljax.runs import names
from pfljax.runs.config import join_options
from pfljax.runtime.words import count_noun

FACTS = ("dataset", "partition", "model", "models")
MOST_NAMES = 3  # of runs in a cell; of more, their number
PAIR_COLUMNS = {  # key -> (heading, scale, format)
    "difference": ("Difference (points)", 100, "+.2f"),
    "p_holm": ("p after Holm", 1, ".4f"),
    "low": ("95 % from", 100, ".2f"),
    "high": ("to", 100, ".2f"),
    "p": ("p", 1, ".4f"),
    "p_wilcoxon": ("p (Wilcoxon, seeds)", 1, ".4f"),
    "p_clients": ("p (Wilcoxon, clients)", 1, ".4f"),
    "win": ("Clients win", 1, ".0f"),
    "tie": ("tie", 1, ".0f"),
    "lose": ("lose", 1, ".0f"),
    "seeds": ("Seeds", 1, ".0f"),
    "needed": ("Seeds to decide", 1, ".0f"),
}
PAIR_NOTE = (
    "Test accuracy of the main models at the last round, on the same clients, data and "
    "seeds; the method with the greater mean first. Would another seed say the same? "
    f"From {ENOUGH} seeds on that is decided by Student's t over the means of the "
    "seeds, with fewer by a moderated t that also uses the clients "
    "(evaluation/significance.py). p after Holm's correction decides: once over the "
    "comparisons with the best, once over the others. The interval is that of the "
    "uncorrected test. Wilcoxon's tests stand beside it; that of the clients asks "
    "whether these clients win, and says nothing of other seeds. The seeds to decide "
    "are those that would find this difference in 80 % of cases."
)


def pair_table(comparisons: Frame) -> Table:
    """The comparisons as text."""
    keys = [key for key in PAIR_COLUMNS if comparisons[key].notna().any()]
    rows = []
    for row in comparisons.to_dict("records"):
        cells = [_cell(row, key) for key in keys]
        rows.append([f"{row['method']} against {row['against']}", *cells])
    header = ["Comparison", *(PAIR_COLUMNS[key][0] for key in keys)]
    return Table("Differences in pairs", header, rows, note=PAIR_NOTE)


def _cell(row: Mapping[Any, Any], key: str) -> str:
    _, scale, form = PAIR_COLUMNS[key]
    value = row[key]
    if value is None or value != value:
        return "more than 100" if key == "needed" else EMPTY
    # A p that would read 0 is shown as the last digit's 1.
    least = 1e-4 if key.startswith("p") else None
    return format(scale * value if least is None else max(value, least), form)


def comparison_notices(
    groups: Sequence[Group], unfinished: Sequence[Path]
) -> list[str]:
    """What a reader has to know before the numbers."""
    notices = []
    for group in groups:
        for run in group.runs:
            notices += run_notices(run, f"{group.label}, seed {run.seed},")
    problem = differing_problem(groups)
    if problem:
        notices.append(f"Not compared: the runs differ in {', '.join(problem)}.")
    elif len(groups) == 1:
        notices.append(f"Nothing is compared: {groups[0].label} is the only method.")
    lengths = sorted({run.summary["rounds"] for g in groups for run in g.runs})
    if len(lengths) > 1:
        texts = ", ".join(map(str, lengths))
        notices.append(f"Not all runs have as many rounds: {texts}.")
    if unfinished:
        texts = ", ".join(map(str, unfinished))
        notices.append(f"Not finished, and left out: {texts}.")
    return notices


def comparison_facts(groups: Sequence[Group]) -> list[str]:
    """How much is compared, and what all runs share."""
    runs = [run for group in groups for run in group.runs]
    seeds = sorted({run.seed for run in runs})
    differing = differing_settings(groups)
    shared = {k: v for k, v in groups[0].config.items() if k not in differing}
    return [
        count_noun(len(groups), "method"),
        count_noun(len(runs), "run"),
        f"seeds {', '.join(map(str, seeds))}",
        *problem_facts(shared),
    ]


def problem_facts(settings: Mapping[str, Any]) -> list[str]:
    """The data and the model, as far as `settings` has them."""
    facts = []
    for name in FACTS:
        if settings.get(name):
            text = names.short(value_text(name, settings[name]))
            facts.append(f"{name} {text}")
    return facts


def settings_blocks(groups: Sequence[Group]) -> list[Block]:
    """The settings that differ between methods, and those that all runs share."""
    differing = differing_settings(groups)
    rows = []
    for group in groups if differing else ():
        settings = join_options(group.config)
        cells = [value_text(name, settings.get(name)) for name in differing]
        rows.append([group.label, *cells])
    table = Table("Settings that differ", ["Method", *differing], rows)
    unshared = {*differing, *OF_A_RUN}
    return [table, *settings_by_group(groups[0].config, without=unshared)]


def origin_blocks(groups: Sequence[Group]) -> list[Block]:
    """The data, the environments and every run."""
    runs = [run for group in groups for run in group.runs]
    return [
        _distinct("Data", runs, _data),
        _distinct("Environments", runs, _environment),
        _run_table(groups),
    ]


def _distinct(
    title: str, runs: Sequence[Run], ask: Callable[[Run], dict[str, str]]
) -> Table:
    """A row for each different answer of `ask`, with the runs that give it."""
    folders: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        folders.setdefault(tuple(ask(run).values()), []).append(run.folder.name)
    rows = []
    for answer, named_ in folders.items():
        who = ", ".join(named_) if len(named_) <= MOST_NAMES else str(len(named_))
        rows.append([*answer, who])
    return Table(title, [*ask(runs[0]), "Runs"], rows)


def _data(run: Run) -> dict[str, str]:
    partition = run.partition
    return {
        "Data set": str(partition.get("dataset", EMPTY)),
        "Source and licence": str(partition.get("source", "not recorded")),
        "Partition seed": str(partition.get("seed", EMPTY)),
        "SHA-256": partition["sha256"],
    }


def _environment(run: Run) -> dict[str, str]:
    packages = run.environment.get("packages") or {}
    shown = ("python", "platform", "processors", "devices")
    return {
        **{n.capitalize(): format_value(run.environment.get(n, EMPTY)) for n in shown},
        "Packages": ", ".join(f"{name} {packages[name]}" for name in packages),
    }


def _run_table(groups: Sequence[Group]) -> Table:
    rows = []
    for group in groups:
        for run in group.runs:
            flops = run.summary.get("step_flops")
            numbers = [run.seconds, run.peak[0] / 1e6, (flops or float("nan")) / 1e6]
            cells = [EMPTY if n != n else f"{n:,.1f}" for n in numbers]
            command = str(run.environment.get("command", EMPTY))
            where = [group.label, str(run.seed), run.folder.name]
            rows.append([*where, run.partition["sha256"][:12], *cells, command])
    header = ["Method", "Seed", "Folder", "Data", "Training (s)", "Most memory (MB)"]
    return Table("Runs", [*header, "Step (MFLOP)", "Command"], rows)
