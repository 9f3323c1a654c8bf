"""The pages of several runs, a comparison and a sweep: what their templates show."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pfljax.report import html
from pfljax.report.columns import Table
from pfljax.report.config import by_group, by_name
from pfljax.report.formats import BEST, cells
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
from pfljax.report.runs import UNIQUE_TO_A_RUN, Group, Run, differing_keys, number

CLIENTS = ("accuracy_over_clients", "bars")
FACTS = ("dataset", "partition", "model")
RUN_TITLES = ["Method", "Seed", "Folder", "Rows", "Training (s)", "Command"]


def comparison_page(
    groups: Sequence[Group],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    landscapes: Sequence[Picture] = (),
) -> str:
    """The page of several runs; the first of the tables has the key figures."""
    runs = [run for group in groups for run in group.runs]
    differing = differing_keys(runs)
    calibration = [t for t in tables if t.name.endswith("_calibration")]
    accuracy = [t for t in tables if not t.name.endswith("_calibration")]
    return html.render(
        "comparison.html.j2",
        title="Comparison",
        facts=_comparison_facts(groups, runs, differing),
        key_figures=_best(tables[0]) if tables else [],
        tables=[comparison_grid(table) for table in accuracy],
        calibration=[comparison_grid(table) for table in calibration],
        curves=[p for p in pictures if p.name not in CLIENTS],
        client_pictures=[p for p in pictures if p.name in CLIENTS],
        landscapes=landscapes,
        differing=_differing(groups, differing),
        shared=by_group(runs[0].settings, without={*differing, *UNIQUE_TO_A_RUN}),
        data=_by_answer(
            "Data, by the SHA-256 of the rows and who holds them.", runs, _data
        ),
        environments=_by_answer("Environments.", runs, _environment),
        runs=_each_run(groups),
    )


def sweep_page(
    about: Mapping[str, Any], table: Table, pictures: Sequence[Picture]
) -> str:
    """The page of a sweep; `about` is its sweep.json."""
    over = about["over"]
    config = by_name(about["experiment"])
    values = [[name, ", ".join(map(str, swept))] for name, swept in over.items()]
    return html.render(
        "sweep.html.j2",
        title="Sweep",
        facts=[f"{config['algorithm']} over {', '.join(over)}", *_facts(config)],
        key_figures=_best(table),
        table=comparison_grid(table),
        curves=pictures,
        swept=grid(["Swept", "Values"], values),
        settings=by_group(about["experiment"], without=over),
    )


def _comparison_facts(
    groups: Sequence[Group], runs: Sequence[Run], differing: Sequence[str]
) -> list[str]:
    """How much is compared, and what all runs share."""
    seeds = sorted({run.config["seed"] for run in runs})
    facts = [f"{len(groups)} methods", f"{len(runs)} runs"]
    facts.append(f"seeds {', '.join(map(str, seeds))}")
    shared = {k: v for k, v in runs[0].config.items() if k not in differing}
    return facts + _facts(shared)


def _facts(config: Mapping[str, Any]) -> list[str]:
    """The problem, as far as `config` has it."""
    return [f"{name} {config[name]}" for name in FACTS if name in config]


def _best(table: Table) -> list[Card]:
    """Who is best in each ranked column."""
    rows = cells(table)
    cards = []
    for i, column in enumerate(table.columns, start=2):
        best = [row for row in rows if row[i].mark == BEST]
        if best:
            names = [f"{row[0].text}: {row[1].text}" for row in best]
            who = "; ".join(names) if len(best) < 3 else f"{len(best)} rows alike"
            cards.append(Card(column.title, best[0][i].text, who))
    return cards


def _differing(groups: Sequence[Group], differing: Sequence[str]) -> Grid:
    """Settings that differ, method by method; no rows where none does."""
    rows = []
    for group in groups if differing else ():
        config = group.runs[0].config
        rows.append([group.label, *(config.get(name) for name in differing)])
    return grid(["Method", *differing], rows, "Settings that differ.")


def _by_answer(
    caption: str, runs: Sequence[Run], ask: Callable[[Run], dict[str, str]]
) -> Grid:
    """A row for each different answer of `ask`, with the runs that give it."""
    runs_by_answer: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        answer = tuple(ask(run).values())
        runs_by_answer.setdefault(answer, []).append(run.folder.name)
    rows = []
    for answer, names in runs_by_answer.items():
        rows.append([*answer, len(names) if len(names) > 3 else ", ".join(names)])
    return grid([*ask(runs[0]), "Runs"], rows, caption)


def _data(run: Run) -> dict[str, str]:
    partition = run.partition
    return {
        "Data set": str(partition.get("dataset", EMPTY)),
        "Source and licence": str(partition.get("source", "not recorded")),
        "Partition seed": str(partition.get("seed", EMPTY)),
        "SHA-256": partition["sha256"],
    }


def _environment(run: Run) -> dict[str, str]:
    environment = run.environment
    packages = (environment.get("packages") or {}).items()
    return {
        "Python": str(environment.get("python", EMPTY)),
        "Packages": ", ".join(f"{name} {version}" for name, version in packages),
        "Platform": str(environment.get("platform", EMPTY)),
        "Processors": str(environment.get("processors", EMPTY)),
        "Devices": counted(environment.get("devices") or [EMPTY]),
    }


def _each_run(groups: Sequence[Group]) -> Grid:
    """Every run with its rows' hash, time and command."""
    rows = []
    for group in groups:
        for run in group.runs:
            rows.append(
                [
                    group.label,
                    run.config["seed"],
                    run.folder.name,
                    run.partition["sha256"][:12],
                    fixed(number(run.seconds), 1),
                    str(run.environment.get("command", EMPTY)),
                ]
            )
    return grid(RUN_TITLES, rows)
