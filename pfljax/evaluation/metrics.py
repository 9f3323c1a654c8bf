"""Metrics of the examples of one client."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.minibatches import in_batches, rows
from pfljax.core.types import Array, Batch, ClientData, Params
from pfljax.evaluation import uncertainty
from pfljax.evaluation.over_clients import DETECTION, GRID
from pfljax.evaluation.passes import rows_per_pass
from pfljax.evaluation.uncertainty import Foreign

BINS = 15  # of the reliability diagram, equal widths, (low, high]
METRICS = (
    "accuracy",
    "top5",
    "loss",
    "entropy",
    "brier",
    "ece",
    "mce",
    "ece_batchwise",
    "mce_batchwise",
)
Models = tuple[int, ...]  # () of one model, (n,) of a stack of them


def score(
    predict: Callable[[Batch], Array],
    data: ClientData,
    batch_size: int,
    at_once: int | None = None,
    foreign: Foreign | None = None,
) -> dict[str, Array]:
    """Metrics of one client's rows, f32[]; NaN if it has none.

    "loss" is the negative log likelihood. "auroc" is there where `foreign` rows are.
    "ece" and "mce" bin the whole set (Guo et al., 2017). Their "_batchwise" forms are
    the mean over batches of `batch_size` in the order of the rows, the last short batch
    weighted equally: SuPerFed's code.
    """
    return from_totals(totals(predict, data, batch_size, at_once, foreign))


def score_path(
    predict: Callable[[Params, Batch], Array],
    ends: tuple[Params, Params],
    data: ClientData,
    batch_size: int,
    foreign: Foreign | None = None,
) -> dict[str, Array]:
    """Metrics f32[11] over `GRID` of the models between two, as `score` has them.

    "ensemble/NAME" f32[] are those of their ensemble, whose probabilities are the mean
    of the eleven.
    """
    a, b = ends
    points = jnp.asarray(GRID)

    def along(batches: Batch) -> Array:
        def at(t: Array) -> Array:
            return jax.vmap(partial(predict, tree.lerp(a, b, t)))(batches)

        # One point after another: eleven models a client would fill the memory.
        logits = jax.lax.map(at, points).astype(jnp.float32)
        log_p = jax.nn.log_softmax(logits)
        mean = jax.nn.logsumexp(log_p, axis=0, keepdims=True) - jnp.log(len(GRID))
        return jnp.concatenate([logits, mean])

    models = (len(GRID) + 1,)
    metrics = from_totals(_totals(along, models, data, batch_size, None, foreign))
    path = {name: metric[:-1] for name, metric in metrics.items()}
    ensemble = {f"ensemble/{name}": metric[-1] for name, metric in metrics.items()}
    return path | ensemble


def totals(
    predict: Callable[[Batch], Array],
    data: ClientData,
    batch_size: int,
    at_once: int | None = None,
    foreign: Foreign | None = None,
) -> dict[str, Array]:
    """Sums over a client's rows; those of two parts of its rows may be added.

    `predict` makes logits of a batch of `batch_size` rows. `at_once` rows are predicted
    at once, whole batches; None for `rows_per_pass`.
    """
    return _totals(jax.vmap(predict), (), data, batch_size, at_once, foreign)


def _totals(
    predict: Callable[[Batch], Array],
    models: Models,
    data: ClientData,
    batch_size: int,
    at_once: int | None,
    foreign: Foreign | None,
) -> dict[str, Array]:
    """`totals` of a stack of models, whose logits are [*models, n, B, K]."""
    at_once = at_once or rows_per_pass(batch_size)
    offsets = jnp.arange(at_once)
    of_foreign = jnp.zeros(models)
    if foreign is not None:
        others = foreign.examples
        of_foreign = uncertainty.entropies(predict, others, batch_size, at_once)

    def sums(logits: Array, of_foreign: Array, batches: Batch) -> dict[str, Array]:
        def count(logits: Array, batch: Batch) -> dict[str, Array]:
            return _counts(logits, batch.y, batch.mask, foreign, of_foreign)

        return _sums(jax.vmap(count)(logits, batches))

    of_models = jax.vmap(sums, (0, 0, None)) if models else sums

    def add(index: Array, total: dict[str, Array]) -> dict[str, Array]:
        row = index * offsets.size + offsets
        # Rows past the end read the client's last row, under mask 0.
        existing = jnp.minimum(row, data.size - 1)
        batch = rows(data, existing, row < data.size)
        batches = in_batches(batch, batch_size)
        return tree.add(total, of_models(predict(batches), of_foreign, batches))

    passes = -(-data.size // offsets.size)
    return jax.lax.fori_loop(0, passes, add, _nothing(models, foreign))


def _nothing(models: Models, foreign: Foreign | None) -> dict[str, Array]:
    """The totals of no rows."""
    scalar = jnp.zeros(models)
    bins = jnp.zeros((*models, BINS))
    nothing: dict[str, Array] = {}
    nothing |= dict.fromkeys(("rows", "top1", "top5", "loss", "entropy"), scalar)
    nothing |= dict.fromkeys(("brier", "batches", "ece", "mce"), scalar)
    nothing |= dict.fromkeys(("binned", "correct", "confidence"), bins)
    if foreign is not None:
        by_holder = jnp.zeros((*models, *foreign.held.shape[:-1]))
        nothing |= {"held": by_holder, "detected": by_holder}
    return nothing


def from_totals(total: dict[str, Array]) -> dict[str, Array]:
    """Metrics, f32[...], of `totals` [...]; NaN where there are no rows."""
    # A division by NaN, not by 0: no rows give NaN for every metric.
    has_rows = total["rows"] > 0
    count = jnp.where(has_rows, total["rows"], jnp.nan)
    ece, mce = _calibration(total)
    metrics = {
        "accuracy": total["top1"] / count,
        "top5": total["top5"] / count,
        "loss": total["loss"] / count,
        "entropy": total["entropy"] / count,
        "brier": total["brier"] / count,
        "ece": jnp.where(has_rows, ece, jnp.nan),
        "mce": jnp.where(has_rows, mce, jnp.nan),
        "ece_batchwise": total["ece"] / total["batches"],
        "mce_batchwise": total["mce"] / total["batches"],
    }
    if "held" in total:
        held = jnp.where(total["held"] > 0, total["held"], jnp.nan)
        metrics[DETECTION] = total["detected"] / held
    return metrics


def _counts(
    logits: Array,
    y: Array,
    mask: Array,
    foreign: Foreign | None,
    of_foreign: Array,
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
    entropy = uncertainty.entropy(log_p)
    counts = {
        "rows": mask,
        "top1": top1,
        "top5": top5,
        "loss": -mask * label_log_p[:, 0],
        "entropy": mask * entropy,
        "brier": mask * uncertainty.brier(log_p, y),
        "binned": binned,
        "correct": binned * top1[:, None],
        "confidence": binned * confidence[:, None],
    }
    if foreign is None:
        return counts
    return counts | uncertainty.detect(entropy, y, mask, foreign, of_foreign)


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
