"""Metrics of the examples of one client."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.kinds import CLASSES, KINDS, Scoring
from pfljax.core.minibatches import in_batches, take_batch, take_examples
from pfljax.core.types import Array, Batch, ClientData, Params
from pfljax.evaluation import uncertainty
from pfljax.evaluation.over_clients import DETECTION, GRID
from pfljax.evaluation.passes import rows_per_pass
from pfljax.evaluation.targets import SCORES, count_or_nan
from pfljax.evaluation.uncertainty import OodExamples

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
    ood: OodExamples | None = None,
    scoring: Scoring = CLASSES,
) -> dict[str, Array]:
    """Metrics of one client's examples, f32[]; NaN if it has none.

    The arguments are those of `totals`. Of classes, "loss" is the negative log
    likelihood. "auroc" is there if `ood` is given. "ece" and "mce" bin the whole set
    (Guo et al., 2017). Their "_batchwise" forms are means over batches in the order of
    the examples, in which a short last batch has the same weight, as in SuPerFed's
    code.
    """
    sums = totals(predict, data, batch_size, at_once, ood, scoring)
    whole = score_whole(predict, data, batch_size, scoring)
    return from_totals(sums, scoring) | whole


def score_whole(
    predict: Callable[[Batch], Array],
    data: ClientData,
    batch_size: int,
    scoring: Scoring,
) -> dict[str, Array]:
    """The metrics `scoring.whole`, f32[] each; NaN for a client without examples."""
    if not scoring.whole:
        return {}
    at_once = rows_per_pass(batch_size)

    def predict_pass(index: Array) -> tuple[Array, Array, Array]:
        batch = take_batch(data, index, at_once)
        outputs = jax.vmap(predict)(in_batches(batch, batch_size))
        outputs = outputs.reshape(at_once, *outputs.shape[2:])
        return outputs.astype(jnp.float32), batch.y, batch.mask

    by_pass = jax.lax.map(predict_pass, jnp.arange(-(-scoring.most // at_once)))
    every = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in by_pass]
    nothing = data.size == 0
    return {
        name: jnp.where(nothing, jnp.nan, compute(*every))
        for name, compute in scoring.whole
    }


def score_path(
    predict: Callable[[Params, Batch], Array],
    ends: tuple[Params, Params],
    data: ClientData,
    batch_size: int,
    ood: OodExamples | None = None,
    scoring: Scoring = CLASSES,
) -> dict[str, Array]:
    """Metrics f32[11] of the models between `ends` at `GRID`, see `score`.

    "ensemble/NAME" f32[] are those of their ensemble, whose probabilities are the mean
    of the eleven; those of other kinds of tasks are as `core.kinds` averages them.
    """
    a, b = ends
    points = jnp.asarray(GRID)

    def predict_path(batches: Batch) -> Array:
        def predict_at(t: Array) -> Array:
            return jax.vmap(partial(predict, tree.lerp(a, b, t)))(batches)

        # One point after another: eleven models a client would fill the memory.
        logits = jax.lax.map(predict_at, points).astype(jnp.float32)
        mean = KINDS[scoring.kind].average(logits)
        return jnp.concatenate([logits, mean[None]])

    models = (len(GRID) + 1,)
    sums = _add_up(predict_path, models, data, batch_size, None, ood, scoring)
    metrics = from_totals(sums, scoring)
    path = {name: metric[:-1] for name, metric in metrics.items()}
    ensemble = {f"ensemble/{name}": metric[-1] for name, metric in metrics.items()}
    return path | ensemble


def totals(
    predict: Callable[[Batch], Array],
    data: ClientData,
    batch_size: int,
    at_once: int | None = None,
    ood: OodExamples | None = None,
    scoring: Scoring = CLASSES,
) -> dict[str, Array]:
    """Sums over a client's examples; those of two parts of its examples may be added.

    Args:
      predict: the logits of a batch of `batch_size` examples.
      data: of one client.
      batch_size: the examples of a batch.
      at_once: how many examples are predicted at once, a multiple of `batch_size`; None
        for `rows_per_pass`.
      ood: examples of classes that the client does not have.
      scoring: the kind of task and its losses; metrics of all examples at once are in
        `score_whole`.
    """
    return _add_up(jax.vmap(predict), (), data, batch_size, at_once, ood, scoring)


def _add_up(
    predict: Callable[[Batch], Array],
    models: Models,
    data: ClientData,
    batch_size: int,
    at_once: int | None,
    ood: OodExamples | None,
    scoring: Scoring,
) -> dict[str, Array]:
    """`totals` of a stack of models, whose logits are [*models, n, B, K]."""
    at_once = at_once or rows_per_pass(batch_size)
    offsets = jnp.arange(at_once)
    ood_entropy = jnp.zeros(models)
    if ood is not None:
        ood_entropy = uncertainty.entropies(predict, ood.examples, batch_size, at_once)

    def add_batches(logits: Array, ood_entropy: Array, batches: Batch):
        if scoring.kind != "classes":
            return _count_targets(logits, batches, scoring)

        def count(logits: Array, batch: Batch) -> dict[str, Array]:
            return _counts(logits, batch.y, batch.mask, ood, ood_entropy)

        return _sums(jax.vmap(count)(logits, batches))

    add_models = jax.vmap(add_batches, (0, 0, None)) if models else add_batches

    def add_pass(index: Array, total: dict[str, Array]) -> dict[str, Array]:
        row = index * offsets.size + offsets
        # Past the end the client's last example is read again, under mask 0.
        existing = jnp.minimum(row, data.size - 1)
        batch = take_examples(data, existing, row < data.size)
        batches = in_batches(batch, batch_size)
        return tree.add(total, add_models(predict(batches), ood_entropy, batches))

    def sums_of_pass(index: Array) -> dict[str, Array]:
        batch = take_examples(data, index * offsets, offsets > 0)
        batches = in_batches(batch, batch_size)
        return add_models(predict(batches), ood_entropy, batches)

    shapes = jax.eval_shape(sums_of_pass, jnp.int32(0))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    passes = -(-data.size // offsets.size)
    return jax.lax.fori_loop(0, passes, add_pass, nothing)


def _count_targets(
    outputs: Array, batches: Batch, scoring: Scoring
) -> dict[str, Array]:
    """The totals of batches [n, B] of a kind of task without classes."""

    def count(outputs: Array, batch: Batch) -> dict[str, Array]:
        outputs = outputs.astype(jnp.float32)
        losses = jnp.where(batch.mask > 0, scoring.losses(outputs, batch.y), 0)
        counts = SCORES[scoring.kind].add_up(outputs, batch.y, batch.mask)
        return counts | {"loss": losses.sum()}

    return jax.tree.map(lambda leaf: leaf.sum(0), jax.vmap(count)(outputs, batches))


def from_totals(
    total: dict[str, Array], scoring: Scoring = CLASSES
) -> dict[str, Array]:
    """Metrics f32[...] from `totals` [...]; NaN where there are no examples."""
    if scoring.kind != "classes":
        loss = total["loss"] / count_or_nan(total["rows"])
        return SCORES[scoring.kind].finish(total) | {"loss": loss}
    # A division by NaN, not by 0: every metric of no examples is NaN.
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
    ood: OodExamples | None,
    ood_entropy: Array,
) -> dict[str, Array]:
    """The totals [B, ...] of each example of a batch; 0 where masked.

    Logits that are not finite hit nothing, although `argmax` names one of them.
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
    if ood is None:
        return counts
    return counts | uncertainty.detect(entropy, y, mask, ood, ood_entropy)


def _sums(by_batch: dict[str, Array]) -> dict[str, Array]:
    """Sums over examples, with the calibration errors summed over the batches."""

    def add_rows(leaf: Array) -> Array:
        return leaf.sum(1)

    def add_batches(leaf: Array) -> Array:
        return leaf.sum(0)

    per_batch = jax.tree.map(add_rows, by_batch)
    ece, mce = _calibration(per_batch)
    # The last pass may end with batches of padding alone.
    filled = per_batch["rows"] > 0
    errors = {
        "batches": filled.astype(jnp.float32),
        "ece": jnp.where(filled, ece, 0),
        "mce": jnp.where(filled, mce, 0),
    }
    return jax.tree.map(add_batches, per_batch | errors)


def _calibration(total: dict[str, Array]) -> tuple[Array, Array]:
    """(ECE, MCE) from sums by bin [..., BINS]."""
    gap = jnp.abs(total["correct"] - total["confidence"])
    count = jnp.maximum(total["rows"], 1)
    ece = gap.sum(-1) / count
    # An empty bin has no gap: its 0 is not the maximum.
    by_bin = gap / jnp.maximum(total["binned"], 1)
    mce = jnp.max(by_bin, -1)
    return ece, mce
