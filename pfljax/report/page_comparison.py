"""The pages of several runs, a comparison and a sweep: what their templates show."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pfljax.report import html
from pfljax.report.columns import Table
from pfljax.report.config import by_group, shown
from pfljax.report.formats import ALIKE, BEST, cells
from pfljax.report.groups import UNIQUE_TO_A_RUN, Group, differing_keys
from pfljax.report.html import (
    EMPTY,
    Card,
    Grid,
    Picture,
    comparison_grid,
    counted,
    fixed,
    grid,
)
from pfljax.report.key_figures import millions
from pfljax.report.paired import Paired
from pfljax.report.runs import Run, number
from pfljax.runs import names
from pfljax.runs.config import named
from pfljax.runtime import words

CLIENTS = ("accuracy_over_clients", "bars")
FACTS = ("dataset", "partition", "model", "models")
RUN_TITLES = [
    "Method",
    "Seed",
    "Folder",
    "Rows",
    "Training (s)",
    "Most memory (MB)",
    "Step (MFLOP)",
    "Command",
]
DATA_CAPTION = "Data, by the SHA-256 of the rows and who holds them."
MOST_NAMES = 3  # in a cell; of more, their number
MOST_LINES = 8  # of comparisons in words; more are folded


def comparison_page(
    groups: Sequence[Group],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    landscapes: Sequence[Picture],
    compared: Paired,
    notices: Sequence[str],
) -> str:
    """The page of several runs; the first of the tables has the key figures.

    `notices` are what a reader has to know first, see `report.notices`.
    """
    runs = [run for group in groups for run in group.runs]
    differing = differing_keys(runs)
    shown_first = []
    calibration = []
    for table in tables:
        is_calibration = table.name.endswith("_calibration")
        same_kind = calibration if is_calibration else shown_first
        same_kind.append(comparison_grid(table))
    # What a run has of its own, as its seed, is shared by none.
    unshared = {*differing, *UNIQUE_TO_A_RUN}
    return html.render(
        "comparison.html.j2",
        title="Comparison",
        facts=_comparison_facts(groups, runs, differing),
        notices=notices,
        key_figures=_best(tables[0]) if tables else [],
        paired=_paired(compared),
        tables=shown_first,
        calibration=calibration,
        curves=[p for p in pictures if p.name not in CLIENTS],
        client_pictures=[p for p in pictures if p.name in CLIENTS],
        landscapes=landscapes,
        differing=_differing(groups, differing),
        shared=by_group(runs[0].config, without=unshared),
        data=_by_answer(DATA_CAPTION, runs, _data),
        environments=_by_answer("Environments.", runs, _environment),
        runs=_each_run(groups),
    )


def sweep_page(
    about: Mapping[str, Any],
    config: Mapping[str, Any],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    compared: Paired,
    notices: Sequence[str],
) -> str:
    """The page of a sweep; the first of the tables has the key figures.

    `about` is its sweep.json, `config` its settings by name.
    """
    over = about["over"]
    swept = ", ".join(over)
    rows = []
    for name, values in over.items():
        rows.append([name, ", ".join(map(str, values))])
    return html.render(
        "sweep.html.j2",
        title="Sweep",
        facts=[f"{config['algorithm']} over {swept}", *_facts(config)],
        notices=notices,
        key_figures=_best(tables[0]),
        paired=_paired(compared),
        tables=[comparison_grid(table) for table in tables],
        curves=pictures,
        swept=grid(["Swept", "Values"], rows),
        settings=by_group(config, without=over),
    )


def _paired(compared: Paired) -> dict[str, Any]:
    """Which method is better: in words, as a table, and how that is known."""
    return {
        "key": compared.key,
        "lines": compared.lines[:MOST_LINES],
        "more": compared.lines[MOST_LINES:],
        "table": comparison_grid(compared.table, before="against"),
        "note": compared.note,
    }


def _comparison_facts(
    groups: Sequence[Group], runs: Sequence[Run], differing: Sequence[str]
) -> list[str]:
    """How much is compared, and what all runs share."""
    seeds = sorted({run.config["seed"] for run in runs})
    which = "seeds" if len(seeds) > 1 else "seed"
    shared = dict(runs[0].config)
    for name in differing:
        shared.pop(name, None)
    return [
        words.number_of(len(groups), "method"),
        words.number_of(len(runs), "run"),
        f"{which} {', '.join(map(str, seeds))}",
        *_facts(shared),
    ]


def _facts(config: Mapping[str, Any]) -> list[str]:
    """The problem, as far as `config` has it."""
    facts = []
    for name in FACTS:
        if config.get(name):
            facts.append(f"{name} {names.short(str(shown(name, config[name])))}")
    return facts


def _best(table: Table) -> list[Card]:
    """Who is best in each ranked column."""
    rows = cells(table)
    cards = []
    # The first two columns name the method and its model.
    for i, column in enumerate(table.columns, start=2):
        best = [row for row in rows if row[i].mark == BEST]
        if not best:
            continue
        names = [f"{row[0].text}: {row[1].text}" for row in best]
        note = "; ".join(names)
        # Ties of many rows would fill the card.
        if len(best) >= MOST_NAMES:
            note = f"{len(best)} rows alike"
        alike = [row for row in rows if row[i].mark == ALIKE]
        if alike:
            note += f"; {len(alike)} more cannot be told from it"
        card = Card(title=column.title, value=best[0][i].text, note=note)
        cards.append(card)
    return cards


def _differing(groups: Sequence[Group], differing: Sequence[str]) -> Grid:
    """Settings that differ, method by method; no rows where none does."""
    rows = []
    for group in groups if differing else ():
        # Runs of a group differ in their seeds alone: the first speaks for all.
        settings = named(group.runs[0].config)
        values = [shown(name, settings.get(name)) for name in differing]
        rows.append([group.label, *values])
    return grid(["Method", *differing], rows, "Settings that differ.")


def _by_answer(
    caption: str, runs: Sequence[Run], ask: Callable[[Run], dict[str, str]]
) -> Grid:
    """A row for each different answer of `ask`, with the runs that give it."""
    names_by_answer: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        answer = tuple(ask(run).values())
        names = names_by_answer.setdefault(answer, [])
        names.append(run.folder.name)
    rows = []
    for answer, names in names_by_answer.items():
        who: Any = ", ".join(names)
        if len(names) > MOST_NAMES:
            who = len(names)
        rows.append([*answer, who])
    titles = [*ask(runs[0]), "Runs"]
    return grid(titles, rows, caption)


def _data(run: Run) -> dict[str, str]:
    partition = run.partition
    return {
        "Data set": str(partition.get("dataset", EMPTY)),
        "Source and licence": str(partition.get("source", "not recorded")),
        "Partition seed": str(partition.get("seed", EMPTY)),
        "SHA-256": partition["sha256"],
    }


def _environment(run: Run) -> dict[str, str]:
    # Old folders have recorded less: what is not there is shown as a dash.
    environment = run.environment
    packages = environment.get("packages") or {}
    versions = [f"{name} {version}" for name, version in packages.items()]
    return {
        "Python": str(environment.get("python", EMPTY)),
        "Packages": ", ".join(versions),
        "Platform": str(environment.get("platform", EMPTY)),
        "Processors": str(environment.get("processors", EMPTY)),
        "Devices": counted(environment.get("devices") or [EMPTY]),
    }


def _each_run(groups: Sequence[Group]) -> Grid:
    """Every run with its rows' hash, time and command."""
    rows = []
    for group in groups:
        for run in group.runs:
            row = [
                group.label,
                run.config["seed"],
                run.folder.name,
                run.partition["sha256"][:12],
                fixed(number(run.timing.seconds), 1),
                _peak(run),
                _step(run),
                str(run.environment.get("command", EMPTY)),
            ]
            rows.append(row)
    return grid(RUN_TITLES, rows)


def _step(run: Run) -> str:
    """FLOPs of the products of a client's step, in millions."""
    flops = run.summary.get("step_flops") or {}
    return millions(flops.get("products"))


def _peak(run: Run) -> str:
    """The most memory in MB, and whose it was."""
    if run.timing.peak_bytes is None:
        return EMPTY
    return f"{run.timing.peak_bytes / 1e6:.0f}, {run.timing.peak_of}"
