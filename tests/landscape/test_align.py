"""Permuted models compute the same, and matching finds the permutation again."""

import jax
import numpy as np
import pytest
from flax import linen as nn

from pfljax import landscape, models
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.types import Batch
from pfljax.landscape import activations, align
from pfljax.models.network import Network
from pfljax.models.units import hidden_units

MLP = ("mlp", {"hidden": (12, 9)}, (5,))
LSTM = ("char_lstm", {"vocab": 6, "embedding": 3, "hidden": 5}, (7,))
NORMS = Network(
    nn.Sequential([nn.Dense(7), nn.BatchNorm(), nn.relu, nn.Dense(6), nn.LayerNorm()]),
    nn.Dense(4),
)
RESNET = ("resnet9", {}, (16, 16, 3))
MODELS = [  # name, options, rows; whether a normalisation keeps parts together
    (*MLP, False),
    ("gn_cnn", {"channels": (8, 16)}, (8, 8, 1), True),
    (NORMS, {}, (5,), False),
    pytest.param("twonn", {}, (5, 5, 1), False, marks=pytest.mark.slow),
    pytest.param("twocnn", {}, (8, 8, 3), False, marks=pytest.mark.slow),
    pytest.param(*LSTM, False, marks=pytest.mark.slow),
    pytest.param(*RESNET, True, marks=pytest.mark.slow),
    pytest.param(
        "mobilenet", {"norm": "batch"}, (64, 64, 3), False, marks=pytest.mark.slow
    ),
]


def _built(name, options, shape, seed=0):
    network = models.model(name, 4, **options) if isinstance(name, str) else name
    task = models.task(network, shape)
    params = jax.jit(task.init)(jax.random.key(seed))
    rng = np.random.default_rng(seed)
    noisy = jax.tree.map(  # biases and scales differ by unit
        lambda p: np.asarray(p + 0.1 * rng.normal(size=p.shape), np.float32), params
    )
    return network, task, noisy


def _shuffled(units, rng):
    """A random order of each group that keeps its parts together."""
    found = []
    for own in units:
        blocks = np.arange(own.size).reshape(own.parts, -1)
        blocks = rng.permuted(blocks[rng.permutation(own.parts)], axis=1)
        found.append(blocks.ravel())
    return found


@pytest.mark.parametrize(("name", "options", "shape", "parted"), MODELS)
def test_a_permuted_model_computes_the_same_and_is_found_again(
    name, options, shape, parted
):
    network, task, a = _built(name, options, shape)
    units = hidden_units(network, a)
    assert any(own.parts > 1 for own in units) == parted
    rng = np.random.default_rng(1)
    b = align.permute_units(units, a, _shuffled(units, rng))
    x = rng.normal(size=(4, *shape)).astype(np.float32)
    x = np.abs(x).round() if name == "char_lstm" else x
    np.testing.assert_allclose(
        *(jax.jit(task.predict)(model, Batch.full(x)) for model in (a, b)),
        rtol=1e-3,
        atol=1e-3,
    )
    moved = [not np.array_equal(p, q) for p, q in zip(*_leaves(a, b), strict=True)]
    assert np.mean(moved) > 0.8
    aligned, _ = align.match_units(units, a, b)
    for p, q in zip(*_leaves(a, aligned), strict=True):
        np.testing.assert_array_equal(p, q)


def test_running_statistics_move_with_their_units_and_are_not_compared():
    network, _, a = _built(NORMS, {}, (5,))
    units = hidden_units(network, a)
    b = align.permute_units(units, a, _shuffled(units, np.random.default_rng(1)))
    # Of another size, they would decide on the order.
    b["body"]["layers_1"]["batch_stats"]["mean"] = 1e3 * np.arange(7, dtype=np.float32)
    found, (order, _) = align.match_units(units, a, b)
    toy.assert_same(tree.parameters(found), tree.parameters(a))
    moved = found["body"]["layers_1"]["batch_stats"]["mean"]
    np.testing.assert_array_equal(moved, 1e3 * order)


@pytest.mark.parametrize(
    "model",
    [
        MLP,
        *(
            pytest.param(model, marks=pytest.mark.slow)
            for model in (LSTM, (NORMS, {}, (5,)))
        ),
    ],
)
def test_activations_find_a_permutation(model):
    network, task, a = _built(*model)
    units = hidden_units(network, a)
    rng = np.random.default_rng(1)
    orders = _shuffled(units, rng)
    b = align.permute_units(units, a, orders)
    shape = (60, *model[2])
    x = rng.normal(size=shape) if model is not LSTM else rng.integers(0, 6, shape)
    data, _ = toy.deal(x, np.zeros(60), [60])
    one = toy.one(data, 0)
    found, taken = landscape.match_activations(units, a, b, task=task, data=one)
    toy.assert_same(found, a)
    for order, back in zip(orders, taken, strict=True):
        np.testing.assert_array_equal(order[back], np.arange(len(order)))


def test_a_unit_that_is_dead_is_like_no_other():
    rng = np.random.default_rng(0)
    x, y = 3 + rng.normal(size=(2, 50, 4))
    y[:, 2] = 7
    found = activations._correlate(4, x.reshape(25, 2, 4), y)
    assert found[1, 3] == pytest.approx(np.corrcoef(x[:, 1], y[:, 3])[0, 1])
    np.testing.assert_array_equal(found[:, 2], 0)


@pytest.mark.parametrize(
    "with_reference", [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_many_models_are_brought_together(with_reference):
    """Permuted copies of one model have barriers before, and none after."""
    network, task, a = _built(*MLP)
    a = jax.tree.map(lambda leaf: 3 * leaf, a)
    units = hidden_units(network, a)
    rng = np.random.default_rng(1)
    each = [a] + [align.permute_units(units, a, _shuffled(units, rng)) for _ in "bcd"]
    broken = jax.tree.map(lambda leaf: leaf + np.nan, a)
    stack = jax.tree.map(lambda *leaves: np.stack(leaves), *each, broken)
    reference = a if with_reference else None
    found, orders = align.match_many(units, stack, reference)
    for k in range(4):
        matched = jax.tree.map(lambda leaf, k=k: leaf[k], found)
        own = [order[k] for order in orders]
        toy.assert_same(align.permute_units(units, each[k], own), matched)
        first = jax.tree.map(lambda leaf: leaf[0], found)
        toy.assert_same(matched, a if with_reference else first)
    assert all(np.isnan(leaf[4]).all() for leaf in jax.tree.leaves(found))
    x = rng.normal(size=(40, 5))
    predicted = task.predict(a, Batch.full(np.float32(x))).argmax(1)
    data = toy.one(toy.deal(x, predicted, [40])[0], 0)
    before, after = (
        landscape.barrier(landscape.pairs(task, models, data).line)[:4, :4]
        for models in (stack, found)
    )
    assert before[np.triu_indices(4, 1)].min() > 0.1
    assert after.max() < 1e-5


def test_the_order_of_a_recurrent_layer_never_leads_away():
    """Its score is linear in the order, while its parameters have it on both axes."""
    options = {"vocab": 6, "embedding": 2, "hidden": 4, "layers": 1}
    network, _, params = _built("char_lstm", options, (7,))
    units = hidden_units(network, params)
    rng = np.random.default_rng(0)
    for seed in range(20):
        a, b = (
            jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), params) for _ in "ab"
        )
        found, _ = align.match_units(units, a, b, seed=seed)
        before, after = (_square_distance(a, model) for model in (b, found))
        assert after <= before


def _square_distance(a, b):
    pairs = zip(*_leaves(a, b), strict=True)
    return sum(np.square(p - q).sum() for p, q in pairs)


def _leaves(*models):
    return [jax.tree.leaves(model) for model in models]


@pytest.mark.slow
def test_every_hidden_parameter_has_its_units():
    network, _, a = _built(*RESNET)
    units = hidden_units(network, a)
    assert sorted(own.size for own in units) == [
        64, 64, 128, 128, 256, 256, 256, 512, 512,
    ]  # fmt: skip
    tied = {(own.path, own.axis) for each in units for own in each.axes}
    assert len(tied) == sum(len(own.axes) for own in units)
    free = {"/".join(path) for path, axis in _axes(a) if (path, axis) not in tied}
    assert free == {
        "body/layers_1/kernel",
        "head/layers_2/kernel",
        "head/layers_2/bias",
    }


def _axes(params):
    """The axes of units: the last two of a kernel, the one of a vector."""
    for path, leaf in tree.paths(params, lambda p: tuple(k.key for k in p)).items():
        for axis in range(max(leaf.ndim - 2, 0), leaf.ndim):
            yield path, axis


@pytest.mark.slow
def test_matching_brings_models_closer_and_never_apart():
    network, _, a = _built(*MLP)
    units = hidden_units(network, a)
    for seed in (3, 4):
        _, _, b = _built(*MLP, seed)
        aligned, orders = align.match_units(units, a, b)
        before, after = (float(tree.square_norm(tree.sub(a, m))) for m in (b, aligned))
        assert after < 0.95 * before
        assert [sorted(order) for order in orders] == [[*range(12)], [*range(9)]]
        toy.assert_same(align.permute_units(units, b, orders), aligned)


def test_parts_are_kept_together():
    score = np.zeros((4, 4))
    score[0, 2] = score[1, 0] = 5.0  # across the parts: not both
    score[1, 3] = 4.0
    assert align.find_best_order(score, 1)[:2].tolist() == [2, 0]
    assert align.find_best_order(score, 2).tolist()[:2] == [2, 3]


def test_parameters_that_the_units_are_not_of_are_refused():
    network, _, a = _built(*MLP)
    units = hidden_units(network, a)
    stacked = jax.tree.map(lambda leaf: np.stack([leaf] * 12), a)
    with pytest.raises(
        ValueError, match=r"b has shape \(12, .* one model's parameters"
    ):
        align.match_units(units, a, stacked)
    with pytest.raises(ValueError, match=r"params has shape \(12, .* \(a client's of"):
        align.permute_units(units, stacked, [])
    for params in (stacked, {"body": {}, "head": {}}, _built("mlp", {}, (5,))[2]):
        with pytest.raises(ValueError, match="parameters of this network"):
            hidden_units(network, params)


def test_a_layer_that_is_not_known_is_refused():
    network = Network(nn.Sequential([nn.Einsum((5, 4), "bi,io->bo")]), nn.Dense(3))
    params = network.init(jax.random.key(0), np.zeros((1, 5)))["params"]
    with pytest.raises(ValueError, match="Einsum at body/layers_0 is a layer"):
        hidden_units(network, params)
