import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfljax.conformance import toy
from pfljax.core.types import ClientData, Examples
from pfljax.evaluation import metrics, over_clients, passes

CLASSES = 7


def score(logits, y, batch_size=4):
    """Metrics of a model whose logits are the examples themselves."""
    logits, y = np.float32(logits), np.asarray(y)
    wrong = np.full((2, logits.shape[1]), np.nan)  # examples of somebody else
    data, _ = toy.deal(
        np.concatenate([wrong, logits, wrong]), np.r_[0, 0, y, 0, 0], [2, len(y), 2]
    )
    return metrics.score(lambda batch: batch.x, toy.one(data, 1), batch_size)


def calibration(confidence, correct):
    """(ECE, MCE) from |accuracy - confidence| in 15 bins (low, high]."""
    ece, mce = 0.0, 0.0
    for low in np.arange(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            gap = abs(correct[inside].mean() - confidence[inside].mean())
            ece, mce = ece + inside.mean() * gap, max(mce, gap)
    return ece, mce


def oracle(logits, y, batch_size):
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    confidence, correct = p.max(1), p.argmax(1) == y
    rank = (p > p[np.arange(len(y)), y, None]).sum(1)
    cuts = range(batch_size, len(y), batch_size)
    batches = zip(np.split(confidence, cuts), np.split(correct, cuts), strict=True)
    by_batch = np.mean([calibration(*batch) for batch in batches], axis=0)
    ece, mce = calibration(confidence, correct)
    truth = np.eye(logits.shape[1])[y]
    return {
        "accuracy": correct.mean(),
        "top5": (rank < 5).mean(),
        "loss": -np.log(p[np.arange(len(y)), y]).mean(),
        "entropy": -(p * np.log(p)).sum(1).mean(),
        "brier": ((p - truth) ** 2).sum(1).mean(),
        "ece": ece,
        "mce": mce,
        "ece_batchwise": by_batch[0],
        "mce_batchwise": by_batch[1],
    }


@pytest.mark.parametrize(
    ("count", "batch_size"), [(1, 4), (23, 4), (24, 4), (300, 10), (300, 400)]
)
def test_metrics_against_numpy(count, batch_size):
    rng = np.random.default_rng(count)
    logits, y = 2 * rng.normal(size=(count, CLASSES)), rng.integers(0, CLASSES, count)
    found = score(logits, y, batch_size)
    assert tuple(found) == metrics.METRICS
    for name, value in oracle(logits, y, batch_size).items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6), name


@pytest.mark.parametrize("right", [0, 3, 8])
def test_constant_confidence_in_closed_form(right):
    """Always sure by c, right p of the time: ECE = MCE = |p - c|."""
    logits = np.tile([2.0, 0, 0], (8, 1))
    confidence = np.exp(2) / (np.exp(2) + 2)
    found = score(logits, [0] * right + [1] * (8 - right), batch_size=8)
    for name in ("ece", "mce", "ece_batchwise", "mce_batchwise"):
        assert float(found[name]) == pytest.approx(
            abs(right / 8 - confidence), abs=1e-6
        )


@settings(deadline=None, max_examples=50)
@given(most=st.integers(0, 3000), batch_size=st.integers(1, 100))
def test_passes_are_whole_batches_and_hold_all_examples(most, batch_size):
    at_once = passes.even_passes(most, batch_size)
    assert at_once % batch_size == 0
    assert at_once <= 2 * passes.rows_per_pass(batch_size) + batch_size
    wasted = -(-most // at_once) * at_once - most
    assert wasted < at_once
    count = -(-most // at_once)
    assert wasted < (count + 1) * batch_size or not most


def test_examples_at_once_change_no_metric():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(37, 3)), jnp.float32)
    pool = Examples(x, jnp.arange(37) % 3)
    data = ClientData(pool, jnp.int32(2), jnp.int32(33))
    one, other = (metrics.score(lambda batch: batch.x, data, 5, n) for n in (None, 15))
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5)


def test_metrics_of_a_client_without_examples_are_nan():
    data, _ = toy.deal(np.ones((3, 3)), np.zeros(3), [3, 0])
    found = metrics.score(lambda batch: batch.x, toy.one(data, 1), 4)
    assert all(np.isnan(value) for value in found.values())


def test_ties_count_against_the_true_class_in_top5():
    found = score(np.zeros((1, CLASSES)), [6])
    assert found["top5"] == 0
    assert found["accuracy"] == 0  # the first of equals is the prediction
    assert found["loss"] == pytest.approx(np.log(CLASSES))


def test_half_precision_logits_are_evaluated_in_full():
    data, _ = toy.deal(np.tile([3.0, 0, 0], (4, 1)), np.zeros(4), [4])
    found = metrics.score(
        lambda batch: batch.x.astype(jnp.bfloat16), toy.one(data, 0), 4
    )
    assert found["loss"].dtype == jnp.float32
    assert float(found["loss"]) == pytest.approx(np.log(1 + 2 * np.exp(-3)), rel=1e-5)


def test_figures_over_clients():
    values, weight = np.r_[np.nan, np.arange(1.0, 13)], np.arange(13.0)
    found = over_clients.summarise(values, weight)
    assert found == pytest.approx(
        {
            "mean": 6.5,
            "std": np.arange(1, 13).std(),
            "weighted": (np.arange(1, 13) ** 2).sum() / 78,
            "worst10": 1.5,  # ceil(12 / 10) = 2 clients
            "best10": 11.5,
            "min": 1,
            "max": 12,
        }
    )


def test_of_an_error_the_worst_are_the_greatest():
    found = over_clients.summarise(np.arange(20.0), np.ones(20), "loss")
    assert (found["worst10"], found["best10"], found["max"]) == (18.5, 0.5, 19)


def test_a_diverged_client_is_not_passed_over():
    found = over_clients.summarise(np.array([1.0, np.inf, 3.0]), np.ones(3), "loss")
    assert found["mean"] is None
    assert found["min"] == 1
    diverged = score(np.full((1, CLASSES), np.nan), [6])
    assert diverged["top5"] == 0


def test_a_model_that_has_diverged_hits_nothing():
    """Not even the class that the greatest of its logits is said to be."""
    lost = np.full((2, CLASSES), np.nan)
    endless = np.where(np.eye(2, CLASSES) > 0, np.inf, 0)
    for logits, y in ((lost, [0, 0]), (endless, [0, 1])):
        found = score(logits, y)
        assert (found["accuracy"], found["top5"]) == (0, 0)
        assert not np.isfinite(found["loss"])


def test_the_weight_follows_its_client():
    found = over_clients.summarise(np.array([3.0, 1.0]), np.array([1.0, 0.0]))
    assert found["weighted"] == 3


def test_the_weighted_rmse_is_that_of_all_examples():
    errors = np.array([3.0, 1.0, 2.0, -2.0])
    of_clients = np.array([3.0, np.sqrt(3)])
    found = over_clients.summarise(of_clients, np.array([1.0, 3.0]), "rmse")
    assert found["weighted"] == pytest.approx(np.sqrt(np.square(errors).mean()))


def test_figures_of_nobody_are_none():
    found = over_clients.summarise(np.full(3, np.nan), np.ones(3))
    assert set(found.values()) == {None}
    assert set(found) == set(over_clients.summarise(np.ones(1), np.ones(1)))


def test_every_client_takes_its_best_lambda():
    path = np.zeros((5, 11))
    path[0, 8] = path[1, [2, 9]] = path[2, [4, 6]] = path[3, 0] = 1
    metric = np.tile(np.arange(11), (5, 1))
    best = over_clients.pick_lambda(path, metric)
    assert best.tolist() == [8, 2, 4, 0, 5]  # ties: nearest 1/2, then the smaller
