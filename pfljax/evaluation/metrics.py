"""Metrics of one client's rows, and figures of one metric over clients."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.minibatches import in_batches, rows
from pfljax.core.types import Array, Batch, ClientData

ROWS = {"cpu": 32, "accelerator": 1024}
BINS = 15  # of the reliability diagram, equal widths, (low, high]
GRID = tuple(i / 10 for i in range(11))  # lambda on the path between two endpoints
FIGURES = ("mean", "std", "weighted", "worst10", "best10", "min", "max")
GREATER_IS_BETTER = ("accuracy", "top5")
METRICS = (
    "accuracy",
    "top5",
    "loss",
    "ece",
    "mce",
    "ece_batchwise",
    "mce_batchwise",
)


def score(
    predict: Callable[[Batch], Array],
    data: ClientData,
    batch_size: int,
    at_once: int | None = None,
) -> dict[str, Array]:
    """Metrics of one client's rows, f32[]; NaN if it has none.

    "ece" and "mce" bin the whole set (Guo et al., 2017). Their "_batchwise" forms are
    the mean over batches of `batch_size` in the order of the rows, the last short batch
    weighted equally: SuPerFed's code.
    """
    return from_totals(totals(predict, data, batch_size, at_once))


def rows_per_pass(batch_size: int) -> int:
    """Rows that are predicted at once: whole batches, about `ROWS`.

    A CPU's caches hold the patches of few images: 50 rows of the CIFAR-10 CNN take two
    thirds of the time of 250.
    """
    kind = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    batches = max(1, ROWS[kind] // batch_size)
    return batches * batch_size


def even_passes(most: int, batch_size: int) -> int:
    """Rows at once, whole batches, so that `most` rows fill the passes over them."""
    passes = max(1, most // rows_per_pass(batch_size))
    # Rounded up: 130 rows in 2 passes of batches of 10 are 7 batches each.
    batches = -(-most // (passes * batch_size))
    return max(1, batches) * batch_size


def totals(
    predict: Callable[[Batch], Array],
    data: ClientData,
    batch_size: int,
    at_once: int | None = None,
) -> dict[str, Array]:
    """Sums over a client's rows; those of two parts of its rows may be added.

    `predict` makes logits of a batch of `batch_size` rows. `at_once` rows are predicted
    at once, whole batches; None for `rows_per_pass`.
    """
    offsets = jnp.arange(at_once or rows_per_pass(batch_size))

    def count(batch: Batch) -> dict[str, Array]:
        logits = predict(batch)
        return _counts(logits, batch.y, batch.mask)

    def add(index: Array, total: dict[str, Array]) -> dict[str, Array]:
        row = index * offsets.size + offsets
        # Rows past the end read the client's last row, under mask 0.
        existing = jnp.minimum(row, data.size - 1)
        batch = rows(data, existing, row < data.size)
        by_batch = jax.vmap(count)(in_batches(batch, batch_size))
        return tree.add(total, _sums(by_batch))

    nothing = jnp.float32(0)
    no_bins = jnp.zeros(BINS)
    zero = {
        "rows": nothing,
        "top1": nothing,
        "top5": nothing,
        "loss": nothing,
        "binned": no_bins,
        "correct": no_bins,
        "confidence": no_bins,
        "batches": nothing,
        "ece": nothing,
        "mce": nothing,
    }
    passes = -(-data.size // offsets.size)
    return jax.lax.fori_loop(0, passes, add, zero)


def from_totals(total: dict[str, Array]) -> dict[str, Array]:
    """Metrics, f32[...], of `totals` [...]; NaN where there are no rows."""
    # A division by NaN, not by 0: no rows give NaN for every metric.
    has_rows = total["rows"] > 0
    count = jnp.where(has_rows, total["rows"], jnp.nan)
    ece, mce = _calibration(total)
    return {
        "accuracy": total["top1"] / count,
        "top5": total["top5"] / count,
        "loss": total["loss"] / count,
        "ece": jnp.where(has_rows, ece, jnp.nan),
        "mce": jnp.where(has_rows, mce, jnp.nan),
        "ece_batchwise": total["ece"] / total["batches"],
        "mce_batchwise": total["mce"] / total["batches"],
    }


def _counts(
    logits: Array,
    y: Array,
    mask: Array,
) -> dict[str, Array]:
    """Per row, zero where masked: 1, hits, loss, one-hot confidence bin.

    Logits that are not finite hit nothing, though `argmax` names one of them.
    """
    logits = logits.astype(jnp.float32)
    log_p = jax.nn.log_softmax(logits)
    label = y[:, None]
    label_log_p = jnp.take_along_axis(log_p, label, 1)
    countable = mask * jnp.isfinite(label_log_p[:, 0])
    predicted = jnp.argmax(logits, 1)
    top1 = countable * (predicted == y)
    # The label's rank is the number of classes that are as likely, itself included.
    rank = (log_p >= label_log_p).sum(1)
    top5 = countable * (rank <= 5)
    confidence = jnp.exp(log_p.max(1))
    # Bins are (low, high]: a confidence on a border belongs to the lower one.
    bin_index = jnp.ceil(confidence * BINS) - 1
    bin_index = jnp.clip(bin_index, 0, BINS - 1).astype(jnp.int32)
    binned = jax.nn.one_hot(bin_index, BINS) * mask[:, None]
    return {
        "rows": mask,
        "top1": top1,
        "top5": top5,
        "loss": -mask * label_log_p[:, 0],
        "binned": binned,
        "correct": binned * top1[:, None],
        "confidence": binned * confidence[:, None],
    }


def _sums(by_batch: dict[str, Array]) -> dict[str, Array]:
    """Sums over rows, with the calibration errors summed over the batches."""

    def over_rows(leaf: Array) -> Array:
        return leaf.sum(1)

    def over_batches(leaf: Array) -> Array:
        return leaf.sum(0)

    per_batch = jax.tree.map(over_rows, by_batch)
    ece, mce = _calibration(per_batch)
    # The last pass may end with batches of padding alone.
    filled = per_batch["rows"] > 0
    errors = {
        "batches": filled.astype(jnp.float32),
        "ece": jnp.where(filled, ece, 0),
        "mce": jnp.where(filled, mce, 0),
    }
    return jax.tree.map(over_batches, per_batch | errors)


def _calibration(total: dict[str, Array]) -> tuple[Array, Array]:
    """(ECE, MCE) from sums by bin [..., BINS]."""
    gap = jnp.abs(total["correct"] - total["confidence"])
    count = jnp.maximum(total["rows"], 1)
    ece = gap.sum(-1) / count
    # An empty bin has no gap: its 0 is not the maximum.
    by_bin = gap / jnp.maximum(total["binned"], 1)
    mce = jnp.max(by_bin, -1)
    return ece, mce


def summarise(
    values: np.ndarray,
    weight: np.ndarray,
    name: str = "accuracy",
) -> dict[str, float | None]:
    """Figures over clients of the metric `name`, [C]; `weight` [C] counts test rows.

    "std" is the population's. "worst10" and "best10" are means over ceil(C / 10)
    clients: of an error, the worst are the greatest. Clients without test rows do not
    count. A figure that is not finite, because a client has diverged, is None.
    """
    counted = weight > 0
    weight = weight[counted]
    # In float64 the squares of great losses fit.
    values = np.asarray(values, np.float64)[counted]
    if not len(values):
        return dict.fromkeys(FIGURES)
    tenth = -(-len(values) // 10)
    worst_first = np.sort(values)
    if name not in GREATER_IS_BETTER:
        worst_first = -np.sort(-values)
    with np.errstate(invalid="ignore", over="ignore"):
        figures = {
            "mean": values.mean(),
            "std": values.std(),
            "weighted": np.average(values, weights=weight),
            "worst10": worst_first[:tenth].mean(),
            "best10": worst_first[-tenth:].mean(),
            "min": values.min(),
            "max": values.max(),
        }
    return {
        figure: float(value) if np.isfinite(value) else None
        for figure, value in figures.items()
    }


def pick_lambda(path: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """The value of `metric` [C, 11] at each client's best point of the path, [C].

    `path` [C, 11] is the accuracy there.
    Ties go to the point nearest 1/2, then to the smaller lambda.
    """
    # In this order `argmax`, which takes the first of equals, settles ties.
    distance = np.abs(np.asarray(GRID) - 0.5)
    order = np.argsort(distance, kind="stable")
    in_order = path[:, order]
    best = order[np.argmax(in_order, axis=1)]
    chosen = np.take_along_axis(metric, best[:, None], 1)
    return chosen[:, 0]
