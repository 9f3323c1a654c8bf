"""Disagreement and CKA of clients' models, against their definitions in float64."""

import jax
import numpy as np
import pytest

from pfljax import landscape
from pfljax.conformance import toy
from pfljax.core.types import Batch
from pfljax.landscape import similarity

TASK, DATA = toy.classifier(), toy.ragged()[0]
MODELS = jax.vmap(TASK.init)(jax.random.split(jax.random.key(1), 8))


def outputs(function, k, clients):
    spans = [np.arange(DATA.offset[c], DATA.offset[c] + DATA.size[c]) for c in clients]
    x = np.asarray(DATA.examples.x)[np.concatenate(spans)]
    params = jax.tree.map(lambda leaf: leaf[k], MODELS)
    return np.asarray(function(params, Batch.full(x), None), np.float64)


def cka(x, y):
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) of linear kernels (eqs. 3 and 4)."""
    centering = np.eye(len(x)) - 1 / len(x)
    k, l_ = (centering @ z @ z.T @ centering for z in (x, y))
    return np.trace(k @ l_) / np.sqrt(np.trace(k @ k) * np.trace(l_ @ l_))


@pytest.mark.parametrize(
    ("examples", "most"), [pytest.param(5, 32, marks=pytest.mark.slow), (256, 3)]
)
def test_two_models_are_compared_on_the_examples_of_both(examples, most, monkeypatch):
    """Whatever the blocks of examples and models."""
    monkeypatch.setattr(similarity, "EXAMPLES", examples)
    monkeypatch.setattr(similarity, "MODELS", most)
    found = landscape.linear_cka(TASK, MODELS, DATA)
    differ = landscape.disagreement(TASK, MODELS, DATA)
    for i, j in ((6, 3), (0, 5), (2, 2)):
        x, y = (outputs(TASK.features, k, {i, j}) for k in (i, j))
        assert found[i, j] == found[j, i] == pytest.approx(cka(x, y), rel=1e-4)
        p, q = (outputs(TASK.logits, k, {i, j}).argmax(1) for k in (i, j))
        assert differ[i, j] == differ[j, i] == pytest.approx((p != q).mean())
    assert 0.05 < differ[6, 3] < 1
    np.testing.assert_array_equal(np.diag(differ), 0)


def test_all_models_may_share_the_examples_of_one_client():
    everything = landscape.pooled(DATA)
    found = landscape.linear_cka(TASK, MODELS, everything, logits=True)
    x, y = (outputs(TASK.logits, k, range(8)) for k in (1, 4))
    assert found[1, 4] == pytest.approx(cka(x, y), rel=1e-4)
    differ = landscape.disagreement(TASK, MODELS, everything)
    assert differ[1, 4] == pytest.approx((x.argmax(1) != y.argmax(1)).mean())


def test_a_model_that_has_diverged_is_not_a_number():
    broken = jax.tree.map(lambda leaf: np.array(leaf), MODELS)
    broken["head"]["bias"][2] = np.nan
    broken["body"]["layers_1"]["bias"][2] = np.nan
    for function in (landscape.disagreement, landscape.linear_cka):
        found = np.isnan(function(TASK, broken, DATA))
        assert found[2].all()
        assert found[:, 2].all()
        assert found.sum() == 15


def test_cka_does_not_see_a_rotation_and_a_scale():
    """With more features than examples, too; a constant feature has none."""
    rng = np.random.default_rng(0)
    for count, width in ((30, 6), (6, 30)):
        x, y = rng.normal(size=(2, count, width))
        turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
        assert similarity._cka(x, 3 * x @ turn + 1) == pytest.approx(1)
        assert similarity._cka(x, y) == pytest.approx(cka(x, y))
    assert similarity._cka(x, np.ones_like(y)) == 0
