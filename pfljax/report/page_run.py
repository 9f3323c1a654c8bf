"""The page of one run: what its template shows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.report import html, notices
from pfljax.report.columns import CALIBRATION, DETECTED, DETECTION, Table
from pfljax.report.config import model_names, model_of_each
from pfljax.report.figures import models_of
from pfljax.report.formats import Cell
from pfljax.report.html import (
    Grid,
    Picture,
    comparison_grid,
    counted,
    fixed,
    grid,
    percent,
)
from pfljax.report.key_figures import key_figures, model_text
from pfljax.report.method_rows import MIXTURE_ROWS
from pfljax.report.quantities import four_digits, quantities_of
from pfljax.report.runs import Run, number
from pfljax.runs import names
from pfljax.runtime.words import number_of

STATISTICS = {  # field of a statistic over clients -> heading
    "mean": "Mean (%)",
    "std": "Std over clients (points)",
    "weighted": "Weighted (%)",
    "worst10": "Worst 10 % (%)",
    "best10": "Best 10 % (%)",
    "min": "Min (%)",
    "max": "Max (%)",
}
JUDGED = "Model and rows"
MODEL = ("model", "finetune")  # fields of a record that say which parameters
CURVES = ("learning_curves", "accuracy_by_seconds", "timeline", "lambda_curve")
CLIENTS = (
    "accuracy_histogram",
    "accuracy_by_client",
    "label_distribution",
    "quantities_by_size",
)
MOST_CLIENTS = 500  # with a row of their own
BY_CLIENT = ("clients", "sizes", "class_histogram", "official", "official_names")
ARRAYS = {  # name in per_client.npz -> heading
    "train_size": "Training rows",
    "test_size": "Test rows",
    "participations": "Rounds taken part in",
}


def run_page(run: Run, tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The page of one run; `tables` are those of fairness and targets."""
    by_name = {picture.name: picture for picture in pictures}
    # Taken out one after another: what is left are the landscapes.
    curves = [by_name.pop(name) for name in CURVES if name in by_name]
    of_clients = [by_name.pop(name) for name in CLIENTS if name in by_name]
    client_title, each_client = _each_client(run)
    return html.render(
        "run.html.j2",
        title=run.label,
        facts=_facts(run),
        notices=[f"This run {sentence}" for sentence in notices.of_run(run)],
        key_figures=key_figures(run),
        evaluations=_evaluations(run.summary["last"]),
        mixture=_mixture(run.summary.get("mixture") or {}),
        best_on_test=run.summary.get("best_on_test"),
        tables=[comparison_grid(table) for table in tables],
        calibration=_calibration(run.summary),
        curves=curves,
        client_pictures=of_clients,
        client_title=client_title,
        each_client=each_client,
        landscapes=list(by_name.values()),
        settings=run.settings,
        data=_data(run.partition),
        environment=_environment(run),
    )


def _facts(run: Run) -> list[str]:
    """What was run on what."""
    config = run.config
    several = config.get("models")
    return [
        str(config["algorithm"]),
        *([f"models {model_names(several)}"] if several else []),
        f"data {names.short(config.get('dataset', 'unknown'))}",
        # Settings of dealing say nothing of clients that were given in Python.
        f"partition {_dealing(run)}",
        number_of(len(run.partition["class_histogram"]), "client"),
        number_of(run.summary["rounds"], "round"),
        f"seed {config['seed']}",
    ]


def _dealing(run: Run) -> str:
    """How the clients got their rows, in a few words."""
    if run.partition.get("given"):
        return "given in Python"
    return names.short(run.config.get("partition", "unknown"))


def _evaluations(moment: Mapping[str, Any]) -> Grid:
    """Every evaluation record, one row each; equal ones share a row."""
    rows = []
    for judged, metrics in _judged(moment["evaluations"]):
        accuracy = metrics.get("accuracy") or {}
        rows.append([judged, *_statistics(accuracy)])
    caption = f"Accuracy at round {moment['round']}, statistics over clients."
    return grid([JUDGED, *STATISTICS.values()], rows, caption)


def _mixture(mixture: Mapping[str, Any]) -> Grid:
    """The ways to set lambda, no rows where the method has no mixture."""
    rows = []
    for choice, text in MIXTURE_ROWS.items():
        metrics = mixture.get(choice) or {}
        accuracy = metrics.get("accuracy")
        if accuracy:
            rows.append([text, *_statistics(accuracy)])
    titles = ["λ", *STATISTICS.values()]
    caption = "Mixture of the federated and the local end. Accuracy over clients."
    return grid(titles, rows, caption)


def _calibration(summary: Mapping[str, Any]) -> Grid:
    """All other metrics of every record and mixture, as means over clients.

    Metrics that nobody has are left out.
    """
    judged = _judged(summary["last"]["evaluations"])
    mixture = summary.get("mixture") or {}
    for choice, text in MIXTURE_ROWS.items():
        if mixture.get(choice):
            judged.append((Cell(f"{text}, test", note="all clients"), mixture[choice]))
    columns = []
    for column in CALIBRATION:
        if any(column.key in metrics for _, metrics in judged):
            columns.append(column)
    rows = []
    for judged_cell, metrics in judged:
        means = []
        for column in columns:
            figures = metrics.get(column.key) or {}
            mean = column.scale * number(figures.get("mean"))
            means.append(fixed(mean, column.digits))
        rows.append([judged_cell, *means])
    caption = "Likelihood, uncertainty and calibration, means over clients."
    if any(column.key == DETECTION for column in columns):
        caption += DETECTED
    return grid([JUDGED, *(column.title for column in columns)], rows, caption)


def _judged(
    evaluations: Sequence[Mapping[str, Any]],
) -> list[tuple[Cell, Mapping[str, Any]]]:
    """(which model on which rows, the metrics) of each different record.

    Records that are equal but for their models are one: "server = personal".
    """
    models: dict[str, list[str]] = {}
    first: dict[str, Mapping[str, Any]] = {}
    for record in evaluations:
        beside = {name: record[name] for name in record if name not in MODEL}
        key = json.dumps(beside, sort_keys=True)
        models.setdefault(key, []).append(model_text(record))
        first.setdefault(key, record)
    judged = []
    for key in sorted(first, key=lambda key: _place(first[key])):
        record = first[key]
        text = f"{' = '.join(models[key])}, {record['split']}"
        note = f"{_who(record)}, {record['when']}"
        judged.append((Cell(text, note=note), record["metrics"]))
    return judged


def _place(record: Mapping[str, Any]) -> tuple[bool, bool]:
    """Where a record stands: test rows first, and of these the personal models."""
    return record["split"] != "test", record["model"] != "personal"


def _who(record: Mapping[str, Any]) -> str:
    """The clients of a record, and how many they are."""
    count = number_of(record["count"], "client")
    group = record["clients"]
    return f"all of {count}" if group == "all" else f"{group} ({count})"


def _statistics(accuracy: Mapping[str, Any]) -> list[str]:
    """The cells of `STATISTICS`."""
    return [percent(accuracy.get(field)) for field in STATISTICS]


def _each_client(run: Run) -> tuple[str, Grid]:
    """(title, a row a client: its rows, how often it took part, its accuracies)."""
    columns = _client_columns(run)
    C = len(columns["Client"])
    shown = list(range(C))
    title = f"Each of {C} clients"
    # A page of all clients of a large federation would be megabytes.
    if C > MOST_CLIENTS:
        shown = _worst_clients(run, MOST_CLIENTS)
        title = f"The {MOST_CLIENTS} clients of least accuracy, of {C}"
    rows = []
    for client in shown:
        rows.append([column[client] for column in columns.values()])
    return title, grid([*columns], rows)


def _worst_clients(run: Run, count: int) -> list[int]:
    """The clients that the first model serves worst; the first ones without a model."""
    models = list(models_of(run))
    if not models:
        return list(range(count))
    accuracy = run.per_client[f"{models[0]}/test/accuracy"][-1]
    # Clients without rows are NaN, which go last.
    order = np.argsort(accuracy, kind="stable")
    return order[:count].tolist()


def _client_columns(run: Run) -> dict[str, Sequence[Any]]:
    """Heading -> a value for each client."""
    histogram = np.asarray(run.partition["class_histogram"])
    # A part of a federation keeps the ids that its clients have there.
    ids = run.partition.get("clients") or range(len(histogram))
    columns: dict[str, Sequence[Any]] = {"Client": ids}
    if run.config.get("models"):
        # By the place among the clients that train, whatever their numbers.
        columns["Model"] = model_of_each(run.config["models"], len(histogram))
    for name, heading in ARRAYS.items():
        values = run.per_client.get(name)
        if values is not None:
            columns[heading] = values.tolist()
    num_classes = (histogram > 0).sum(1)
    columns["Classes"] = num_classes.tolist()
    for model, text in models_of(run).items():
        last = run.per_client[f"{model}/test/accuracy"][-1]
        # In float64: a float32 times 100 would be rounded once more.
        in_percent = 100 * last.astype(float)
        columns[f"Accuracy, {text} (%)"] = [fixed(value, 2) for value in in_percent]
    for name, values in quantities_of(run).items():
        columns[name] = [four_digits(value) for value in values]
    return columns


def _environment(run: Run) -> dict[str, Any]:
    """Where the numbers come from: all that the folder has; empty without records."""
    environment = dict(run.environment)
    packages = environment.pop("packages", {})
    if "devices" in environment:
        environment["devices"] = counted(environment["devices"])
    executor = dict(run.executor)
    if "model" in executor:
        # Of several architectures all are named.
        executor["model"] = model_names(executor["model"].split(","))
    return environment | packages | executor


def _data(partition: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest in few lines, without what it says of each client."""
    lines = dict(partition)
    # These are a line a client, or come last.
    for name in (*BY_CLIENT, "unseen", "sha256"):
        lines.pop(name, None)
    if partition.get("unseen"):
        lines["clients held out"] = len(partition["unseen"]["class_histogram"])
    for split, sizes in partition["sizes"].items():
        # A federation without validation rows has an empty list of them.
        if sizes:
            spread = f"{min(sizes)} to {max(sizes)} a client"
            lines[f"rows to {split}"] = f"{sum(sizes)} in all, {spread}"
    lines["official split"] = _official(partition)
    lines["sha256"] = partition["sha256"]
    return lines


def _official(partition: Mapping[str, Any]) -> Any:
    """Rows of each official split; they are recorded in all, or client by client."""
    official = partition.get("official")
    if not isinstance(official, list):
        return official
    total = np.sum(official, axis=0).tolist()
    return dict(zip(partition["official_names"], total, strict=True))
