"""Judged metrics by name, and records of them: figures over groups of clients."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pfljax.core.types import Algorithm
from pfljax.evaluation.over_clients import GRID, pick_lambda, summarise
from pfljax.evaluation.views import View


def by_client(
    algorithm: Algorithm,
    judged: Callable[[str, str], dict[str, Any]],
    views: Sequence[str],
    splits: Sequence[str],
) -> dict[str, Any]:
    """Metrics of each client by "model/split/metric"; this is how a state is judged.

    Where nobody has a model of their own, the server's stand under "personal" as well.

    Args:
      algorithm: the method.
      judged: (view, split) -> metrics by name, an array over clients each.
      views: of `pfljax.evaluation.views.views_of`.
      splits: those of "test" and "validation" in which somebody has rows.
    """
    values = {}
    for view in views:
        for split in splits:
            # Nobody chooses a round by models that the run throws away.
            if view == "trained" and split == "validation":
                continue
            metrics = judged(view, split)
            models = [view]
            if view == "server" and algorithm.personal is None:
                models.append("personal")
            for model in models:
                for name, metric in metrics.items():
                    values[f"{model}/{split}/{name}"] = metric
    return values


def along_path(
    judged: Callable[[str], dict[str, Any]],
    splits: Sequence[str],
) -> dict[str, Any]:
    """Metrics [C, 11] by "split/metric" of the models between the endpoints.

    And [C] by "split/ensemble/metric" of the ensemble of them.
    """
    values = {}
    for split in splits:
        for name, metric in judged(split).items():
            values[f"{split}/{name}"] = metric
    return values


def records(
    algorithm: Algorithm,
    values: dict[str, np.ndarray],
    sizes: dict[str, np.ndarray],
    groups: dict[str, np.ndarray],
) -> list[dict[str, Any]]:
    """One record a model, split and group of clients: of whom, when, and figures.

    Args:
      algorithm: the method.
      values: metrics [C] by "model/split/metric", of `by_client`.
      sizes: rows [C] by split, the weights of weighted means.
      groups: indices of clients by the name of their group.
    """
    judged: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for name, metric_values in values.items():
        model, split, metric = name.split("/")
        judged.setdefault((model, split), {})[metric] = metric_values
    lines = []
    for (model, split), metrics in judged.items():
        for clients, ids in groups.items():
            if not len(ids):
                continue
            figures = {
                name: summarise(metric[ids], sizes[split][ids], name)
                for name, metric in metrics.items()
            }
            of_server = model == "server"
            line = {
                "model": "server" if of_server else "personal",
                "finetune": 0 if of_server else algorithm.adaptation_steps,
                "clients": clients,
                "when": View(model).when,
                "split": split,
                "count": len(ids),
                "metrics": figures,
            }
            lines.append(line)
    return lines


def mixture_summary(path: dict[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
    """Figures over clients at lambda = 1/2, chosen on validation rows, the oracle's,
    and the ensemble's.

    Args:
      path: metrics by name, of `along_path`.
      weight: test rows [C].
    """
    ensemble = {}
    test = {}
    for name, metric in path.items():
        split, _, rest = name.partition("/")
        model, _, of_ensemble = rest.partition("/")
        if split != "test":
            continue
        if model == "ensemble":
            ensemble[of_ensemble] = summarise(metric, weight, of_ensemble)
        else:
            test[rest] = metric

    def figures(chosen_on: np.ndarray) -> dict[str, Any]:
        return {
            name: summarise(pick_lambda(chosen_on, metric), weight, name)
            for name, metric in test.items()
        }

    # An accuracy that is greatest at 1/2 for everybody chooses 1/2.
    middle = np.zeros_like(test["accuracy"])
    middle[:, GRID.index(0.5)] = 1
    chosen = None
    if "validation/accuracy" in path:
        chosen = figures(path["validation/accuracy"])
    return {
        "half": figures(middle),
        "chosen_on_validation": chosen,
        "oracle_chosen_on_test": figures(test["accuracy"]),
        "ensemble": ensemble,
    }
