"""The page of one run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.report import figures
from pfljax.report.html import Block, Cards, Pairs, Picture, format_value, render
from pfljax.report.key_figures import key_figures
from pfljax.report.lead import find_lead, format_number
from pfljax.report.quantities import PREFIX, list_quantities
from pfljax.report.settings import (
    model_of_each,
    problem_facts,
    settings_by_group,
    value_text,
)
from pfljax.report.tables import Table
from pfljax.runs.config import to_json
from pfljax.runs.result import Result
from pfljax.runtime.words import count_noun

MOST_CLIENTS = 500  # with a row of their own
BY_CLIENT = (
    *("clients", "sizes", "class_histogram", "official", "official_names"),
    *("client_names", "class_names"),
)
ARRAYS = {  # name in clients.npz -> heading
    "train_size": "Training examples",
    "test_size": "Test examples",
    "participations": "Rounds taken part in",
}


def run_page(
    run: Result,
    details: Mapping[str, Sequence[Table]],
    pictures: Sequence[Picture],
    landscapes: Sequence[Picture],
) -> str:
    """The page; `details` are tables by the section that they stand in.

    The first of the `pictures` stands on the first screen.
    """
    folded: dict[str, Sequence[Block]] = {
        **details,
        "More figures": pictures[1:],
        "Landscapes": landscapes,
        "Each client": [_client_table(run)],
        "Settings": settings_by_group(to_json(run.experiment)),
        "Data and environment": origin_pairs(run),
    }
    lead = [Cards(key_figures(run)), *pictures[:1]]
    return render(run.label, _facts(run), run_notices(run, "This run"), lead, folded)


def run_notices(run: Result, subject: str) -> list[str]:
    """Sentences about `subject`, a run, that a reader has to know first."""
    notices = []
    stopped = run.summary.get("stopped")
    if stopped:
        notices.append(
            f"{subject} stopped early, after round {stopped['round']} of "
            f"{stopped['of']}, by {stopped['by']}."
        )
    if "diverged" in run.summary:
        notices.append(f"{subject} has diverged: {run.summary['diverged']}.")
    return notices


def _facts(run: Result) -> list[str]:
    settings = to_json(run.experiment)
    if run.partition.get("given"):
        settings["partition"] = "given in Python"
    return [
        run.experiment.algorithm.short_name,
        *problem_facts(settings),
        count_noun(len(run.partition["class_histogram"]), "client"),
        count_noun(run.rounds, "round"),
        f"seed {run.experiment.seed}",
    ]


def _client_table(run: Result) -> Table:
    """A row for each client; in a large federation for those that fare worst."""
    columns = client_columns(run)
    rows = [list(map(str, row)) for row in zip(*columns.values(), strict=True)]
    title = f"Each of {len(rows)} clients"
    if len(rows) > MOST_CLIENTS:
        lead = find_lead([run])
        goodness = lead.sign * run.clients[f"personal/test/{lead.name}"][-1]
        worst = np.argsort(goodness, kind="stable")[:MOST_CLIENTS]
        most = "least" if lead.sign > 0 else "greatest"
        title = f"The {MOST_CLIENTS} clients of {most} {lead.title}, of {len(rows)}"
        rows = [rows[client] for client in worst]
    return Table(title, list(columns), rows)


def client_columns(run: Result) -> dict[str, Sequence[Any]]:
    """A value for each client, by heading."""
    histogram = np.asarray(run.partition["class_histogram"])
    C = len(histogram)
    numbers = run.partition.get("clients") or range(C)
    columns: dict[str, Sequence[Any]] = {
        "Client": run.partition.get("client_names", numbers)
    }
    models = to_json(run.experiment)["models"]
    if models:
        columns["Model"] = model_of_each(models, C)
    for name, heading in ARRAYS.items():
        if name in run.clients:
            columns[heading] = run.clients[name].tolist()
    if run.partition.get("kind", "classes") == "classes":
        columns["Classes"] = (histogram > 0).sum(1)
    lead = find_lead([run])
    unit = " (%)" if lead.is_share else ""
    for model, text in figures.list_models(run).items():
        values = run.clients[f"{model}/test/{lead.name}"][-1].astype(float)
        columns[f"{lead.heading}, {text}{unit}"] = [*map(lead.number, values)]
    for name, values in list_quantities(run).items():
        # A method may call one "Client".
        heading = f"{PREFIX}{name}" if name in columns else name
        columns[heading] = [format_number(value, ".4g") for value in values]
    return columns


def origin_pairs(run: Result, whose: str = "") -> list[Pairs]:
    """The data and the environment, as blocks of a page."""
    return [
        Pairs(_data(run.partition), f"Data{whose}"),
        Pairs(_environment(run), f"Environment{whose}"),
    ]


def _environment(run: Result) -> dict[str, str]:
    """The versions and the machine behind the numbers, as far as recorded."""
    environment = dict(run.environment)
    packages = environment.pop("packages", {})
    return {n: value_text(n, value) for n, value in (environment | packages).items()}


def _data(partition: Mapping[str, Any]) -> dict[str, str]:
    """The manifest, without what it says of each client."""
    hidden = (*BY_CLIENT, "unseen")
    lines = {n: format_value(v) for n, v in partition.items() if n not in hidden}
    if partition.get("unseen"):
        lines["clients held out"] = str(len(partition["unseen"]["class_histogram"]))
    for split, sizes in partition["sizes"].items():
        if sizes:
            lines[f"examples to {split}"] = (
                f"{sum(sizes)} in all, {min(sizes)} to {max(sizes)} a client"
            )
    official = partition.get("official")
    if isinstance(official, list):
        total = np.sum(official, axis=0).tolist()
        official = dict(zip(partition["official_names"], total, strict=True))
    return lines | {"official split": format_value(official)}
