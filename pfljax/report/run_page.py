"""The page of one run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.report import figures
from pfljax.report.html import Block, Cards, Pairs, Picture, percent, render, text_of
from pfljax.report.key_figures import key_figures
from pfljax.report.runs import Run, model_text, number
from pfljax.report.settings import model_names, model_of_each, settings_by_group
from pfljax.report.tables import CALIBRATION, CALIBRATION_NOTE, EMPTY, Table
from pfljax.report.tidy import MIXTURES
from pfljax.runs import names
from pfljax.runtime.words import number_of

FIGURES = {  # of a statistic over clients -> heading
    "mean": "Mean (%)",
    "std": "Std over clients (points)",
    "weighted": "Weighted (%)",
    "worst10": "Worst 10 % (%)",
    "best10": "Best 10 % (%)",
    "min": "Min (%)",
    "max": "Max (%)",
}
FIELDS = (
    "split",
    "clients",
    "count",
    "when",
    "metrics",
)  # beside the model of a record
MOST_CLIENTS = 500  # with a row of their own
BY_CLIENT = ("clients", "sizes", "class_histogram", "official", "official_names")
ARRAYS = {  # name in per_client.npz -> heading
    "train_size": "Training examples",
    "test_size": "Test examples",
    "participations": "Rounds taken part in",
}


def run_page(
    run: Run,
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    landscapes: Sequence[Picture],
) -> str:
    """The page; `tables` are those of fairness and targets.

    The first of the `pictures` stands on the first screen.
    """
    folded: dict[str, Sequence[Block]] = {
        "Accuracy": [_evaluation_table(run), *tables],
        "Calibration and loss": [_calibration_table(run)],
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
        number_of(len(run.partition["class_histogram"]), "client"),
        number_of(run.summary["rounds"], "round"),
        f"seed {run.seed}",
    ]


def _evaluations(run: Run) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(model, split, clients; metrics) of the last round; equal records are one."""
    models: dict[str, list[str]] = {}
    records: dict[str, Mapping[str, Any]] = {}
    for record in run.summary["last"]["evaluations"]:
        key = json.dumps([record[name] for name in FIELDS], sort_keys=True)
        models.setdefault(key, []).append(model_text(record))
        records[key] = record
    # Test data first, and of these the personal models.
    for key in sorted(
        records,
        key=lambda k: (records[k]["split"] != "test", "personal" not in models[k]),
    ):
        record = records[key]
        who = f"{record['clients']}, {number_of(record['count'], 'client')}"
        yield f"{' = '.join(models[key])}; {record['split']}; {who}", record["metrics"]
    for choice, model in MIXTURES.items():
        metrics = (run.summary.get("mixture") or {}).get(choice)
        if metrics:
            yield f"{model}; test; all", metrics


def _evaluation_table(run: Run) -> Table:
    rows = []
    for title, metrics in _evaluations(run):
        accuracy = metrics.get("accuracy") or {}
        rows.append([title, *(percent(accuracy.get(name)) for name in FIGURES)])
    best = run.summary.get("best_on_test")
    note = "Statistics over clients."
    if best:
        note += (
            f" Best on test (not a result): {percent(best['accuracy'])} % at round "
            f"{best['round']}, chosen on the test data themselves."
        )
    title = f"Accuracy at round {run.summary['last']['round']}"
    return Table(title, ["Model, data, clients", *FIGURES.values()], rows, note=note)


def _calibration_table(run: Run) -> Table:
    evaluations = list(_evaluations(run))
    columns = [c for c in CALIBRATION if any(c.key in m for _, m in evaluations)]
    rows = []
    for title, metrics in evaluations:
        means = [number((metrics.get(c.key) or {}).get("mean")) for c in columns]
        rows.append([title, *_numbers(means, columns)])
    header = ["Model, data, clients", *(c.title for c in columns)]
    return Table("Calibration and loss", header, rows, note=CALIBRATION_NOTE)


def _numbers(values: Sequence[float], columns: Sequence[Any]) -> list[str]:
    return [
        EMPTY if np.isnan(v) else f"{c.scale * v:.{c.digits}f}"
        for v, c in zip(values, columns, strict=True)
    ]


def _client_table(run: Run) -> Table:
    """A row for each client; in a large federation for those that fare worst."""
    columns = client_columns(run)
    C = len(columns["Client"])
    shown = np.arange(C)
    title = f"Each of {C} clients"
    if C > MOST_CLIENTS:
        models = list(figures.models_of(run))
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
    for model, text in figures.models_of(run).items():
        accuracy = 100 * run.per_client[f"{model}/test/accuracy"][-1].astype(float)
        columns[f"Accuracy, {text} (%)"] = [_cell(a, ".2f") for a in accuracy]
    for name, values in figures.quantities_of(run).items():
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
    return {n: text_of(value) for n, value in (environment | packages).items()}


def _data(partition: Mapping[str, Any]) -> dict[str, str]:
    """The manifest, without what it says of each client."""
    hidden = (*BY_CLIENT, "unseen", "sha256")
    lines = {n: text_of(v) for n, v in partition.items() if n not in hidden}
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
    return lines | {"official split": text_of(official), "sha256": partition["sha256"]}
