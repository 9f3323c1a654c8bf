"""The page of one run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.report import figures
from pfljax.report.html import Block, Cards, Pairs, Picture, format_value, render
from pfljax.report.key_figures import key_figures
from pfljax.report.runs import Run
from pfljax.report.settings import model_names, model_of_each, settings_by_group
from pfljax.report.tables import EMPTY, Table
from pfljax.runs import names
from pfljax.runtime.words import count_noun

MOST_CLIENTS = 500  # with a row of their own
BY_CLIENT = ("clients", "sizes", "class_histogram", "official", "official_names")
ARRAYS = {  # name in per_client.npz -> heading
    "train_size": "Training examples",
    "test_size": "Test examples",
    "participations": "Rounds taken part in",
}


def run_page(
    run: Run,
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
        "Settings": settings_by_group(run.config),
        "Data": [Pairs(_data(run.partition))],
        "Environment": [Pairs(_environment(run))],
    }
    lead = [Cards(key_figures(run)), *pictures[:1]]
    return render(run.label, _facts(run), run_notices(run, "This run"), lead, folded)


def run_notices(run: Run, subject: str) -> list[str]:
    """What a reader has to know first of a run, in sentences about `subject`."""
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


def _facts(run: Run) -> list[str]:
    config = run.config
    dealing = names.short(config.get("partition", "unknown"))
    return [
        str(config["algorithm"]),
        *([f"models {model_names(config['models'])}"] if config.get("models") else []),
        f"data {names.short(config.get('dataset', 'unknown'))}",
        f"partition {'given in Python' if run.partition.get('given') else dealing}",
        count_noun(len(run.partition["class_histogram"]), "client"),
        count_noun(run.summary["rounds"], "round"),
        f"seed {run.seed}",
    ]


def _client_table(run: Run) -> Table:
    """A row for each client; in a large federation for those that fare worst."""
    columns = client_columns(run)
    C = len(columns["Client"])
    shown = np.arange(C)
    title = f"Each of {C} clients"
    if C > MOST_CLIENTS:
        models = list(figures.list_models(run))
        if models:
            accuracy = run.per_client[f"{models[0]}/test/accuracy"][-1]
            shown = np.argsort(accuracy, kind="stable")
        shown = shown[:MOST_CLIENTS]
        title = f"The {MOST_CLIENTS} clients of least accuracy, of {C}"
    rows = [[str(column[i]) for column in columns.values()] for i in shown.tolist()]
    return Table(title, list(columns), rows)


def client_columns(run: Run) -> dict[str, Sequence[Any]]:
    """A value for each client, by heading."""
    histogram = np.asarray(run.partition["class_histogram"])
    C = len(histogram)
    columns: dict[str, Sequence[Any]] = {
        "Client": run.partition.get("clients") or range(C)
    }
    if run.config.get("models"):
        columns["Model"] = model_of_each(run.config["models"], C)
    for name, heading in ARRAYS.items():
        if name in run.per_client:
            columns[heading] = run.per_client[name].tolist()
    columns["Classes"] = (histogram > 0).sum(1)
    for model, text in figures.list_models(run).items():
        accuracy = 100 * run.per_client[f"{model}/test/accuracy"][-1].astype(float)
        columns[f"Accuracy, {text} (%)"] = [_cell(a, ".2f") for a in accuracy]
    for name, values in figures.list_quantities(run).items():
        columns[name] = [_cell(value, ".4g") for value in values]
    return columns


def _cell(value: float, form: str) -> str:
    return EMPTY if np.isnan(value) else format(value, form)


def _environment(run: Run) -> dict[str, str]:
    """The versions and the machine behind the numbers, as far as recorded."""
    environment = dict(run.environment)
    packages = environment.pop("packages", {})
    if "model" in environment:
        environment["model"] = model_names(environment["model"].split(","))
    return {n: format_value(value) for n, value in (environment | packages).items()}


def _data(partition: Mapping[str, Any]) -> dict[str, str]:
    """The manifest, without what it says of each client."""
    hidden = (*BY_CLIENT, "unseen", "sha256")
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
    return lines | {
        "official split": format_value(official),
        "sha256": partition["sha256"],
    }
