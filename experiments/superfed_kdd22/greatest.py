"""SuPerFed's metrics other than the accuracy, as its code takes them from the path.

For every metric the code reports each client's greatest value over the lambdas that are
best for some client. `greatest/SEED.json` beside a sweep has these values, in the form
of the sweep's tidy table.
"""

from pathlib import Path
from typing import Any

import numpy as np
from shared.published import GREATEST
from shared.swept import Result, Sweep

from pfljax.evaluation.over_clients import summarise
from pfljax.runs.folder import read_json, write_json

FOLDER = "greatest"


def greatest_of_best(path: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """Each client's greatest `metric` [C, 11] over the lambdas best for some client.

    Of the accuracy `path` [C, 11] itself it is each client's best; of a loss or an
    error, the worst of those lambdas. Ties go to the smallest lambda, as theirs do.
    """
    known = ~np.isnan(path).any(1)
    best = np.unique(np.argmax(path[known], axis=1))
    return metric[:, best].max(1, initial=-np.inf)


def keep(place: Path, found: Sweep) -> None:
    """Writes the rows of these runs, where the method has a path."""
    for result in found.results:
        if result.path:
            (place / FOLDER).mkdir(exist_ok=True)
            file = place / FOLDER / f"{result.values['seed']}.json"
            write_json(file, {"rows": rows_of(result)})


def rows_of(result: Result) -> list[dict[str, Any]]:
    """Returns a row for each metric on the test examples after the last round."""
    model, chosen = GREATEST
    evaluated = {"evaluated": model, "lambda": chosen, "split": "test"}
    of_run = {"seed": str(result.values["seed"]), "round": int(result.round[-1])}
    accuracy = result.path["test/accuracy"]
    rows = []
    for name, values in result.path.items():
        split, _, metric = name.partition("/")
        if split == "test" and values.ndim == 2:  # an ensemble has no lambda
            by_client = greatest_of_best(accuracy, values)
            figures = summarise(by_client, result.size["test"], metric)
            rows.append({**of_run, **evaluated, "metric": metric, **figures})
    return rows


def read(place: Path) -> list[dict[str, Any]]:
    """The rows of all runs; a figure that is not finite is NaN."""
    files = sorted((place / FOLDER).glob("*.json"))
    rows = [row for file in files for row in read_json(file)["rows"]]
    return [{k: np.nan if v is None else v for k, v in row.items()} for row in rows]
