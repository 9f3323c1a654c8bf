"""The pages of several runs: a comparison, and a sweep."""

from collections.abc import Mapping, Sequence
from typing import Any

from pfljax.report.columns import Table
from pfljax.report.formats import BEST, cells
from pfljax.report.html import (
    EMPTY,
    Card,
    Picture,
    Section,
    cards,
    comparison_grid,
    counted,
    document,
    figures,
    fixed,
    folded,
    grid,
    note,
    pairs,
)
from pfljax.report.runs import UNIQUE_TO_A_RUN, Group, Run, differing_keys, number

CLIENTS = ("accuracy_over_clients", "bars")
TOLD = ("dataset", "partition", "model")
LANDSCAPES = "Kinds that would make this page too large are on the runs' own pages."


def comparison_page(
    groups: Sequence[Group],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    landscapes: Sequence[Picture] = (),
) -> str:
    """The page of several runs; the first of the tables has the key figures."""
    runs = [run for group in groups for run in group.runs]
    differ = differing_keys(runs)
    hidden = {*differ, *UNIQUE_TO_A_RUN}
    shared = {k: v for k, v in runs[0].config.items() if k not in hidden}
    seeds = ", ".join(str(s) for s in sorted({run.config["seed"] for run in runs}))
    facts = [f"{len(groups)} methods", f"{len(runs)} runs", f"seeds {seeds}"]
    facts += [f"{name} {shared[name]}" for name in TOLD if name in shared]
    clients = [picture for picture in pictures if picture.name in CLIENTS]
    curves = [picture for picture in pictures if picture.name not in CLIENTS]
    shown = figures(landscapes) + note(LANDSCAPES) if landscapes else ""
    sections = [
        Section("Summary", _best(tables)),
        Section("Tables", _tables(tables)),
        Section("Curves", figures(curves)),
        Section("Clients", figures(clients)),
        Section("Landscapes", shown),
        Section("Config", _settings(groups, differ, shared)),
        Section("Provenance", _provenance(groups)),
    ]
    return document("Comparison", facts, sections)


def sweep_page(
    about: Mapping[str, Any], table: Table, pictures: Sequence[Picture]
) -> str:
    """The page of a sweep; `about` is its sweep.json."""
    config, over = about["experiment"], about["over"]
    facts = [f"{config['algorithm']} over {', '.join(over)}"]
    facts += [f"{name} {config[name]}" for name in TOLD if name in config]
    settings = {k: v for k, v in config.items() if k not in over}
    swept = grid(["Swept", "Values"], [[k, _listed(v)] for k, v in over.items()])
    sections = [
        Section("Summary", _best([table])),
        Section("Tables", _tables([table])),
        Section("Curves", figures(pictures)),
        Section("Config", swept + folded("All other settings", pairs(settings))),
    ]
    return document("Sweep", facts, sections)


def _best(tables: Sequence[Table]) -> str:
    """Who is best in each ranked column of the first table; why nobody is."""
    if not tables:
        return ""
    table = tables[0]
    shown, found = cells(table), []
    for i, column in enumerate(table.columns, start=2):
        best = [row for row in shown if row[i].mark == BEST]
        if best:
            names = [f"{row[0].text}: {row[1].text}" for row in best]
            who = "; ".join(names) if len(best) < 3 else f"{len(best)} rows alike"
            found.append(Card(column.title, best[0][i].text, who))
    alone = "One row has nothing to be ranked against: see the table."
    apart = "Nothing is marked as the best: see below the table's title."
    told = alone if len(shown) == 1 else apart
    return cards(found) or note(told)


def _tables(tables: Sequence[Table]) -> str:
    """The tables; those of calibration are folded."""
    told: dict[bool, list[str]] = {True: [], False: []}
    for table in tables:
        told[table.name.endswith("_calibration")].append(comparison_grid(table))
    legend = note("In each ranked column the best is bold, the second underlined.")
    more = folded("Calibration and loss", "\n".join(told[True]))
    return "\n".join([*told[False], legend, more])


def _settings(
    groups: Sequence[Group], differ: Sequence[str], shared: Mapping[str, Any]
) -> str:
    """Settings that differ, method by method, then those that all runs share."""
    rows = [[g.label, *(g.runs[0].config.get(key) for key in differ)] for g in groups]
    own = grid(["Method", *differ], rows, "Settings that differ.") if differ else ""
    return own + folded("Settings that all runs share", pairs(shared))


def _provenance(groups: Sequence[Group]) -> str:
    """Data by their hash, environments, and the runs."""
    runs = [run for group in groups for run in group.runs]
    rows = [_run_row(group.label, run) for group in groups for run in group.runs]
    titles = ["Method", "Seed", "Folder", "Rows", "Training (s)", "Command"]
    return "\n".join(
        [
            _shared(
                "Data, by the SHA-256 of the rows and who holds them.", runs, _data
            ),
            _shared("Environments.", runs, _environment),
            folded(f"Each of {len(runs)} runs", grid(titles, rows)),
        ]
    )


def _shared(caption: str, runs: Sequence[Run], tell: Any) -> str:
    """A row for each different answer of `tell`, with the runs that give it."""
    found: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        found.setdefault(tuple(tell(run).values()), []).append(run.folder.name)
    rows = [
        [*told, len(names) if len(names) > 3 else ", ".join(names)]
        for told, names in found.items()
    ]
    return grid([*tell(runs[0]), "Runs"], rows, caption)


def _data(run: Run) -> dict[str, str]:
    known = run.partition
    return {
        "Data set": str(known.get("dataset", EMPTY)),
        "Source and licence": str(known.get("source", "not recorded")),
        "Partition seed": str(known.get("seed", EMPTY)),
        "SHA-256": known["sha256"],
    }


def _environment(run: Run) -> dict[str, str]:
    known = run.environment
    packages = (known.get("packages") or {}).items()
    return {
        "Python": str(known.get("python", EMPTY)),
        "Packages": ", ".join(f"{name} {version}" for name, version in packages),
        "Platform": str(known.get("platform", EMPTY)),
        "Processors": str(known.get("processors", EMPTY)),
        "Devices": counted(known.get("devices") or [EMPTY]),
    }


def _run_row(label: str, run: Run) -> list[Any]:
    known = run.partition["sha256"][:12]
    seconds = fixed(number(run.seconds), 1)
    command = str(run.environment.get("command", EMPTY))
    return [label, run.config["seed"], run.folder.name, known, seconds, command]


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(str(value) for value in values)
