"""Running statistics of models, against Flax alone and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx

from pfljax import models
from pfljax.conformance import toy
from pfljax.core import statistics, tree
from pfljax.core.keys import derive
from pfljax.core.minibatches import minibatch
from pfljax.core.optimizers import sgd
from pfljax.core.training import fit
from pfljax.core.types import Batch, Local
from pfljax.models.variables import from_linen, split

KEY = jax.random.key(0)
CLASSES = 3


def network(**options):
    """A dense layer, batch normalisation and the head."""
    norm = nn.BatchNorm(momentum=0.9, **options)
    body = nn.Sequential([nn.Dense(4), norm, nn.relu])
    return models.Network(body, nn.Dense(CLASSES))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
        layers = [nnx.Linear(3, 4, rngs=rngs), norm, nnx.relu]
        self.body = nnx.Sequential(*layers)
        self.head = nnx.Linear(4, CLASSES, rngs=rngs)


LINEN = models.task(network(), (3,))
NNX = models.task_from_nnx(Nnx, (3,))


def drawn(task=LINEN):
    """Parameters with statistics that are not those of the beginning."""
    params = task.init(KEY)
    keys = iter(jax.random.split(KEY, 20))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: (
            leaf + 0.1 + 0.1 * jax.random.uniform(next(keys), leaf.shape)
            if statistics.is_statistic(path)
            else leaf
        ),
        params,
    )


def batch(count=6, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(2, 3, (count, 3)).astype(np.float32)
    return Batch.full(x, jnp.arange(count) % CLASSES)


def padded(examples, more=5):
    """The batch with examples that do not count."""
    x = jnp.concatenate([examples.x, jnp.full((more, 3), 7.0)])
    y = jnp.concatenate([examples.y, jnp.zeros(more, jnp.int32)])
    return Batch(x, y, jnp.concatenate([examples.mask, jnp.zeros(more)]))


def flax_step(module, optimizer):
    """A training step as Flax's own guide has it."""

    def loss(parameters, running, batch):
        logits, changed = module.apply(
            {"params": parameters, "batch_stats": running},
            batch.x,
            mutable=["batch_stats"],
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
        return losses.mean(), changed["batch_stats"]

    @jax.jit
    def step(parameters, running, moments, batch):
        grads, running = jax.grad(loss, has_aux=True)(parameters, running, batch)
        updates, moments = optimizer.update(grads, moments, parameters)
        return optax.apply_updates(parameters, updates), running, moments

    return step


def test_a_clients_training_is_flax_with_mutable_statistics():
    local = Local(0.1, batch_size=4, optimizer=sgd(momentum=0.9, weight_decay=0.01))
    data, params = toy.one(toy.ragged()[0], 1), drawn()  # 20: no batch is short
    turn = toy.turn(KEY, round_=0, steps=9, client_id=1)
    ours, _ = jax.jit(lambda p: fit(LINEN.loss, p, data, turn, local))(params)
    optimizer = local.optimizer(0.1)
    step = flax_step(network(use_running_average=False), optimizer)
    parameters, running = split(params)
    moments = optimizer.init(parameters)
    for examples in minibatches(data, turn):
        parameters, running, moments = step(parameters, running, moments, examples)
    theirs = from_linen({"params": parameters, "batch_stats": running})
    toy.assert_close(ours, theirs, 1e-6)
    assert not np.allclose(running["body"]["layers_1"]["mean"], 0)


def minibatches(data, turn):
    """The minibatches of a client, in order."""
    order = derive(turn.key, "minibatches")
    return [minibatch(data, jnp.int32(i), order, 4) for i in range(int(turn.steps))]


@pytest.mark.parametrize("task", [LINEN, NNX], ids=["linen", "nnx"])
def test_the_gradient_of_a_statistic_is_old_minus_new(task):
    params, examples = drawn(task), batch()
    _, slope = jax.jit(jax.value_and_grad(task.loss))(params, examples, KEY)
    norm = "layers_1" if task is LINEN else "layers"
    own, change = params["body"][norm], slope["body"][norm]
    if task is NNX:
        own, change, dense = own["1"], change["1"], params["body"]["layers"]["0"]
    else:
        dense = params["body"]["layers_0"]
    z = np.asarray(examples.x, np.float64) @ dense["kernel"] + dense["bias"]
    for name, now in (("mean", z.mean(0)), ("var", z.var(0))):
        old = own["batch_stats"][name]
        np.testing.assert_allclose(
            change["batch_stats"][name], 0.1 * (old - now), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    "task", [LINEN, pytest.param(NNX, marks=pytest.mark.slow)], ids=["linen", "nnx"]
)
def test_examples_that_pad_a_batch_change_nothing(task):
    params, examples = drawn(task), batch()
    program = jax.jit(jax.value_and_grad(task.loss))
    toy.assert_close(
        program(params, padded(examples), KEY), program(params, examples, KEY), 2e-6
    )
    for part in map(jax.jit, (task.logits, task.features)):
        np.testing.assert_allclose(
            part(params, padded(examples), KEY)[:6],
            part(params, examples, KEY),
            atol=1e-5,
        )
    none = padded(examples)._replace(mask=jnp.zeros(11))
    value, slope = program(params, none, KEY)
    assert value == 0
    assert all(not leaf.any() for leaf in jax.tree.leaves(slope))


@pytest.mark.parametrize(
    "task", [LINEN, pytest.param(NNX, marks=pytest.mark.slow)], ids=["linen", "nnx"]
)
def test_evaluation_uses_running_statistics_and_leaves_them(task):
    params, examples = drawn(task), batch()
    predict = jax.jit(task.predict)
    logits = predict(params, examples)
    alone = predict(params, jax.tree.map(lambda leaf: leaf[:1], examples))
    np.testing.assert_allclose(logits[:1], alone, rtol=1e-5, atol=1e-6)
    trained = jax.jit(task.logits)(params, examples, KEY)
    assert not np.allclose(logits, trained, atol=1e-2)
    np.testing.assert_allclose(
        task.head(params, task.features(params, examples, None)), logits, rtol=1e-6
    )
    slope = jax.jit(jax.grad(task.loss))(params, examples, None)
    running, others = tree.split(slope, statistics.mask(slope))
    assert len(jax.tree.leaves(running)) == 2
    assert all(not leaf.any() for leaf in jax.tree.leaves(running))
    assert all(leaf.any() for leaf in jax.tree.leaves(others["head"]))


def test_flax_evaluates_the_same_variables_alike():
    params, examples = drawn(), batch()
    parameters, statistics = split(params)
    variables = {"params": parameters, "batch_stats": statistics}
    theirs = network(use_running_average=True).apply(variables, examples.x)
    np.testing.assert_allclose(LINEN.predict(params, examples), theirs, rtol=1e-6)


def test_a_loss_of_logits_or_features_carries_statistics_at_any_scale():
    params, examples = drawn(), batch()

    def of_logits(params):
        return 7 * LINEN.logits(params, examples, KEY).sum()

    def of_features(params):
        return (LINEN.features(params, examples, KEY) ** 2).sum()

    slopes = [jax.grad(f)(params) for f in (of_logits, of_features)]
    wanted = jax.grad(LINEN.loss)(params, examples, KEY)
    running = [split(slope).statistics for slope in (*slopes, wanted)]
    toy.assert_close(running[0], running[2], 1e-6)
    toy.assert_close(running[1], running[2], 1e-6)


@pytest.mark.slow
def test_linen_and_nnx_train_alike():
    first = drawn()
    layers = first["body"]
    same = {"0": layers["layers_0"], "1": layers["layers_1"]}
    second = {"body": {"layers": same}, "head": first["head"]}
    shapes = jax.eval_shape(NNX.init, KEY)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, second)
    local = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 0.01))
    data = toy.one(toy.ragged()[0], 2)
    turn = toy.turn(KEY, round_=0, steps=4, client_id=2)
    ends = [
        jax.jit(lambda p, task=task: fit(task.loss, p, data, turn, local))(params)
        for task, params in ((LINEN, first), (NNX, second))
    ]  # 7 examples: each second batch is short
    for a, b in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("task", [LINEN, NNX], ids=["linen", "nnx"])
def test_statistics_belong_to_their_module(task):
    names = tree.paths(task.init(KEY))
    running = [name for name in names if "batch_stats" in name]
    assert [name.rsplit("/", 1)[1] for name in running] == ["mean", "var"]
    groups, modules = tree.paths(task.groups), tree.paths(task.modules)
    assert list(groups) == list(modules) == list(names)
    assert task.num_modules == 3
    for name in running:
        scale = name.replace("batch_stats/", "").rsplit("/", 1)[0] + "/scale"
        assert modules[name] == modules[scale]
        assert groups[name] == "body"


@pytest.mark.slow
def test_resnet9_has_running_statistics_where_it_is_asked_to():
    module = models.model("resnet9", 3, stem=4, norm="batch_running")
    task = models.task(module, (8, 8, 3))
    names = tree.paths(jax.eval_shape(task.init, KEY))
    means = [name for name in names if name.endswith("batch_stats/mean")]
    assert len(means) == 1 + 8 + 3  # the stem, four blocks, three skips
    examples = Batch.full(jnp.ones((4, 8, 8, 3)), jnp.arange(4) % 3)
    params = jax.jit(task.init)(KEY)
    slope = jax.jit(jax.grad(task.loss))(params, examples, KEY)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    assert all(tree.paths(slope)[name].any() for name in means[:1])


def test_a_layer_whose_rows_are_not_in_front_is_refused():
    turned = nn.Sequential([lambda x: x.T, nn.BatchNorm(), lambda x: x.T])
    with pytest.raises(ValueError, match="bring the batch axis to the front"):
        models.task(models.Network(turned, nn.Dense(3)), (3,))
