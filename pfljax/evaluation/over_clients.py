"""Figures of one metric over clients. It needs NumPy alone."""

from collections.abc import Iterable

import numpy as np

GRID = tuple(i / 10 for i in range(11))  # lambda on the path between two endpoints
FIGURES = ("mean", "std", "weighted", "worst10", "best10", "min", "max")
DETECTION = "auroc"  # recorded where examples of other classes are evaluated as well
LESS_IS_BETTER = ("entropy", "brier", "ece", "mce", "rmse", "mae", "perplexity")
SHARES = ("accuracy", "f1", "auc", "auroc", "top5", "precision", "hit_rate")
HEADLINES = ("accuracy", "micro_f1", "rmse")  # the first that a run has leads


def is_greater_better(name: str) -> bool:
    """Whether a greater value of this metric is better.

    Less is better if the name ends in "loss" or "error".
    """
    plain = name.removesuffix("_batchwise")
    return not (plain in LESS_IS_BETTER or plain.endswith(("loss", "error")))


def is_share(name: str) -> bool:
    """Whether this metric is a share of 1, which reports show in percent."""
    return name.endswith(SHARES)


def headline(names: Iterable[str], monitor: str = "auto") -> str:
    """The metric that reports lead with: `monitor`, or that of the task."""
    if monitor != "auto":
        return monitor
    known = set(names)
    return next(name for name in HEADLINES if name in known)


def summarise(
    values: np.ndarray,
    weight: np.ndarray,
    name: str = "accuracy",
) -> dict[str, float | None]:
    """Figures over clients of the metric `name`, [C].

    `weight` [C] counts test examples. Clients without any do not count. "weighted" is
    the mean over all examples, and "std" is the population's. "worst10" and "best10"
    are means over ceil(C / 10) clients: of an error, the worst are the greatest. A
    figure that is not finite, because a client has diverged, is None.
    """
    counted = weight > 0
    if name == DETECTION:
        # A client that holds every class has nothing to detect.
        counted &= ~np.isnan(values)
    weight = weight[counted]
    values = np.asarray(values)[counted]
    if not len(values):
        return dict.fromkeys(FIGURES)
    tenth = -(-len(values) // 10)
    # As float32, which sorts several times as fast as float64.
    worst_first = np.sort(values) if is_greater_better(name) else -np.sort(-values)
    # In float64 the squares of great losses fit.
    values = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        figures = {
            "mean": values.mean(),
            "std": values.std(),
            "weighted": _weighted(values, weight, name),
            "worst10": worst_first[:tenth].mean(dtype=np.float64),
            "best10": worst_first[-tenth:].mean(dtype=np.float64),
            "min": values.min(),
            "max": values.max(),
        }
    return {
        figure: float(value) if np.isfinite(value) else None
        for figure, value in figures.items()
    }


def _weighted(values: np.ndarray, weight: np.ndarray, name: str) -> float:
    """The mean by examples; of RMSE the root of the mean square over all of them."""
    if name == "rmse":
        return np.sqrt(np.average(np.square(values), weights=weight))
    return np.average(values, weights=weight)


def pick_lambda(path: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """The value of `metric` [C, 11] at each client's best point of the path, [C].

    `path` [C, 11] is the accuracy there, or another value of which more is better.
    Ties go to the point nearest 1/2, then to the smaller lambda.
    """
    # In this order `argmax`, which takes the first of equals, settles ties.
    distance = np.abs(np.asarray(GRID) - 0.5)
    order = np.argsort(distance, kind="stable")
    in_order = path[:, order]
    best = order[np.argmax(in_order, axis=1)]
    chosen = np.take_along_axis(metric, best[:, None], 1)
    return chosen[:, 0]
