import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.conformance import toy
from pfljax.core.types import ClientData, Examples
from pfljax.evaluation import over_clients, programs, uncertainty
from pfljax.evaluation.uncertainty import OodExamples
from pfljax.runtime.programs import Same

K = 4
RNG = np.random.default_rng(3)
# The examples are their logits; some come twice, so that entropies tie.
LOGITS = np.repeat(RNG.normal(size=(30, K)), 2, axis=0).astype(np.float32)
Y = RNG.integers(0, K, 60).astype(np.int32)
HELD = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]], bool)
POOL = Examples(jnp.asarray(LOGITS), jnp.asarray(Y))
ROWS = ClientData(POOL, jnp.array([0, 10, 25, 40]), jnp.array([10, 15, 15, 0]))
OTHERS = np.arange(7, 60, 3)  # of the pool
OOD = OodExamples(jax.tree.map(lambda leaf: leaf[OTHERS], POOL), HELD)


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def auroc(held, at, size, p):
    """Over all pairs of examples, one by one; `p` are all predictions."""
    entropy = -(p * np.log(p)).sum(-1)
    won = []
    for own in range(at, at + size):
        for other in OTHERS:
            if held[Y[own]] and not held[Y[other]]:
                a, b = entropy[own], entropy[other]
                won.append(0.5 if np.isclose(a, b, rtol=1e-6) else float(b > a))
    return np.mean(won) if won else np.nan


def expected():
    spans = zip(HELD, ROWS.offset, ROWS.size, strict=True)
    return [auroc(*map(np.asarray, span), softmax(LOGITS)) for span in spans]


def task():
    """A model that multiplies the logits, which the examples are."""
    return toy.classifier()._replace(predict=lambda scale, batch: scale * batch.x)


def test_each_client_detects_examples_of_classes_that_it_does_not_hold():
    score = programs.task_scores(Same(task()), "personal", 4, None, 1)
    found = score(jnp.ones(4), ROWS, OOD)
    np.testing.assert_allclose(found["auroc"], expected(), rtol=1e-6)
    assert np.isfinite(found["auroc"]).tolist() == [True, True, False, False]
    without = score(jnp.ones(4), ROWS)
    assert set(found) == {*without, "auroc"}
    for name, values in without.items():
        np.testing.assert_array_equal(found[name], values)


def test_clients_that_share_examples_differ_in_what_they_hold():
    whose = np.array([1, 0, 1, 1])
    spans = ROWS._replace(offset=jnp.array([10, 25]), size=jnp.array([15, 15]))
    held = uncertainty.group_by_span(OOD, whose, 2)
    metrics = programs.score_server(Same(task()), 4, None)(jnp.float32(1), spans, held)
    found = np.asarray(metrics["auroc"])[whose, uncertainty.positions_in_span(whose)]
    wanted = [
        auroc(held, 10 + 15 * span, 15, softmax(LOGITS))
        for held, span in zip(HELD, whose, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.slow
def test_along_a_path_every_model_and_the_ensemble_detect():
    ends = jnp.full(4, -2.0), jnp.full(4, 3.0)
    found = programs.task_scores(Same(task()), "mixture", 4, None, 2)(ends, ROWS, OOD)
    assert found["auroc"].shape == (4, len(over_clients.GRID))
    along = [softmax(np.float64(-2 + 5 * t) * LOGITS) for t in over_clients.GRID]
    for point in (0, 3, 10):
        wanted = auroc(HELD[1], 10, 15, along[point])
        assert found["auroc"][1, point] == pytest.approx(wanted, rel=1e-6), point
    wanted = auroc(HELD[1], 10, 15, np.mean(along, axis=0))
    assert found["ensemble/auroc"][1] == pytest.approx(wanted, rel=1e-6)


def test_examples_are_taken_evenly_and_classes_are_those_of_training_examples():
    train = ClientData(POOL, np.array([0, 6, 9]), np.array([6, 3, 20]))
    test = ClientData(POOL, np.array([40, 30, 40]), np.array([20, 5, 20]))
    found = uncertainty.select_ood(train, test, K, 6)
    index = [*range(30, 35), *range(40, 60)]
    even = [index[i] for i in (0, 4, 9, 14, 19, 24)]
    np.testing.assert_array_equal(found.examples.y, Y[even])
    np.testing.assert_array_equal(found.examples.x, LOGITS[even])
    spans = zip(train.offset, train.size, strict=True)
    held = [[k in Y[at : at + size] for k in range(K)] for at, size in spans]
    assert found.held.tolist() == held
    assert len(uncertainty.select_ood(train, test, K, 99).examples.y) == 25


def test_what_has_diverged_is_sure_of_nothing():
    sure = jnp.array([[0.0, -jnp.inf], [jnp.nan, 0.0]])
    assert uncertainty.entropy(sure[0]) == 0
    assert np.isnan(uncertainty.entropy(sure[1]))
    assert uncertainty.brier(sure[0], jnp.int32(1)) == 2


def test_who_holds_every_class_has_no_say_in_figures_of_detection():
    values = np.array([0.5, np.nan, 0.9])
    found = over_clients.summarise(values, np.ones(3), "auroc")
    assert (found["mean"], found["min"]) == (pytest.approx(0.7), 0.5)
    assert over_clients.summarise(values, np.ones(3), "accuracy")["mean"] is None
