"""Metrics of clients by name, and records with figures over groups of clients."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pfljax.core.types import Algorithm
from pfljax.evaluation.over_clients import (
    GRID,
    headline,
    is_greater_better,
    pick_lambda,
    summarise,
)
from pfljax.evaluation.views import PERSONAL, SERVER, TRAINED

MOMENTS = {TRAINED: "after local training"}
NEWEST = "after the newest broadcast"


def by_client(
    algorithm: Algorithm,
    evaluate: Callable[[str, str], dict[str, Any]],
    views: Sequence[str],
    splits: Sequence[str],
) -> dict[str, Any]:
    """Metrics of each client by "model/split/metric", of runs and sweeps alike.

    If clients have no models of their own, the server's metrics are "personal" as well.

    Args:
      algorithm: the method.
      evaluate: (view, split) -> metrics by name, an array over clients each.
      views: see `pfljax.evaluation.views`.
      splits: those of "test" and "validation" in which a client has examples.
    """
    values = {}
    for view in views:
        for split in splits:
            # No round is chosen by models that the run throws away.
            if view == TRAINED and split == "validation":
                continue
            metrics = evaluate(view, split)
            models = [view]
            if view == SERVER and algorithm.personal is None:
                models.append(PERSONAL)
            for model in models:
                for name, metric in metrics.items():
                    values[f"{model}/{split}/{name}"] = metric
    return values


def records(
    algorithm: Algorithm,
    values: dict[str, np.ndarray],
    sizes: dict[str, np.ndarray],
    groups: dict[str, np.ndarray],
) -> list[dict[str, Any]]:
    """A record for each model, split and group of clients, as summary.json has them.

    For example {"model": "personal", "finetune": 0, "clients": "all", "when": "after
    the newest broadcast", "split": "test", "count": 20, "metrics": {"accuracy":
    {"mean": 0.9, ...}, ...}}: the clients' own models, of all 20 clients, which take no
    step before they are evaluated on test examples.

    Args:
      algorithm: the method.
      values: metrics [C] by "model/split/metric", of `by_client`.
      sizes: examples [C] by split, the weights of weighted means.
      groups: indices of clients by the name of their group.
    """
    by_model: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for name, metric_values in values.items():
        model, split, metric = name.split("/")
        by_model.setdefault((model, split), {})[metric] = metric_values
    lines = []
    for (model, split), metrics in by_model.items():
        for clients, ids in groups.items():
            if not len(ids):
                continue
            of_group = {name: metric[ids] for name, metric in metrics.items()}
            figures = _summarise(of_group, sizes[split][ids])
            of_server = model == "server"
            line = {
                "model": "server" if of_server else "personal",
                "finetune": 0 if of_server else algorithm.adaptation_steps,
                "clients": clients,
                "when": MOMENTS.get(model, NEWEST),
                "split": split,
                "count": len(ids),
                "metrics": figures,
            }
            lines.append(line)
    return lines


def _summarise(metrics: dict[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
    """Figures over clients of metrics [C].

    A client whose examples do not define a metric, such as the AUC of a single class,
    is left out of it. One that has diverged is not.
    """
    is_sound = np.isfinite(metrics.get("loss", np.nan))
    return {
        name: summarise(values, np.where(is_sound & np.isnan(values), 0, weight), name)
        for name, values in metrics.items()
    }


def mixture_summary(path: dict[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
    """Figures over clients of a mixture, by the way in which lambda is chosen.

    Args:
      path: metrics [C, 11] by "mixture/split/metric", and [C] of the ensemble.
      weight: test examples [C].
    """
    ensemble = {}
    test = {}
    for name, metric in path.items():
        _, split, *of_ensemble, metric_name = name.split("/")
        if split != "test":
            continue
        if of_ensemble:
            ensemble[metric_name] = summarise(metric, weight, metric_name)
        else:
            test[metric_name] = metric

    def figures(chosen_on: np.ndarray) -> dict[str, Any]:
        return {
            name: summarise(pick_lambda(chosen_on, metric), weight, name)
            for name, metric in test.items()
        }

    lead = headline(test)
    better = 1 if is_greater_better(lead) else -1
    # A value that is greatest at 1/2 for all clients chooses 1/2.
    middle = np.zeros_like(test[lead])
    middle[:, GRID.index(0.5)] = 1
    chosen = None
    on_validation = path.get(f"mixture/validation/{lead}")
    if on_validation is not None:
        chosen = figures(better * on_validation)
    return {
        "half": figures(middle),
        "chosen_on_validation": chosen,
        "oracle_chosen_on_test": figures(better * test[lead]),
        "ensemble": ensemble,
    }
