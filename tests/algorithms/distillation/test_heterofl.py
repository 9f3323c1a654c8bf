from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pfljax import engine, models, selection
from pfljax.algorithms.distillation import _slices as slices
from pfljax.algorithms.distillation.heterofl import Slice, heterofl
from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import Case, toy
from pfljax.core import aggregation, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.local_statistics import by_name
from pfljax.core.losses import data_loss, mask_absent
from pfljax.core.optimizers import sgd
from pfljax.core.training import fit
from pfljax.core.types import Batch, ClientData, Examples, Local
from pfljax.engine.setting import Groups
from pfljax.models.heterofl_cnn import network
from pfljax.simulate.architectures import link_tasks, task_of_server

# Beside the model, whether there are examples of each of three classes.
SENT = (toy.WHOLE, toy.WHOLE + 4 * 3)
CONFORMANCE = [
    Case("heterofl", bytes=SENT),
    Case("heterofl", {"mask": False}, bytes=SENT),
]

TASK = toy.classifier()
TRAIN, _ = toy.ragged()
NOISY = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))
WIDE = {"mask": False, "clip": 1e9}


@cache
def levels():
    """Perceptrons of 4, 6 and 2 hidden units: the largest is the second."""
    tasks = [models.task(models.mlp(3, hidden=(width,)), (3,)) for width in (4, 6, 2)]
    return link_tasks(tuple(map(toy.traced_once, tasks)))


def rounds_of_levels(cohort=8, rounds=1, **options):
    methods = tuple(heterofl(task, NOISY, **options) for task in levels())
    setting = engine.Setting(
        methods[0],
        NOISY,
        selection.uniform(cohort, 8),
        groups=Groups(methods, levels(), (0, 1, 2)),
    )
    step = jax.jit(partial(engine.one_round, setting))
    states = [engine.init(setting, levels()[0], 8, jax.random.key(0))]
    for _ in range(rounds):
        states.append(step(states[-1], TRAIN)[0])
    return states


@pytest.mark.slow
def test_of_one_level_without_mask_it_is_uniform_fedavg():
    uniform = fedavg(TASK, NOISY)._replace(aggregate=aggregation.averaging("uniform"))
    plain, _ = toy.run_rounds(uniform, TASK, NOISY, TRAIN, 3, cohort=5)
    ours, _ = toy.run_rounds(
        heterofl(TASK, NOISY, **WIDE), TASK, NOISY, TRAIN, 3, cohort=5
    )
    toy.assert_close(plain[-1].server, ours[-1].server, 1e-6)


def draw(like, rng):
    return jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), like
    )


def test_the_mean_against_numpy():
    """Three levels and five places; one does not report, one slot is empty."""
    rng = np.random.default_rng(0)
    shapes = [shapes_of_model(task) for task in levels()]
    server = draw(shapes[1], rng)
    places = {0: np.array([0, 3]), 1: np.array([2, 5]), 2: np.array([1, 4])}
    mask = np.array([1.0, 1, 1, 0, 1])
    present = rng.integers(0, 2, (3, 2, 3)).astype(np.float32)
    present[:, :, 2] = 0  # nobody has the last class
    sent = {}
    for number, shape in enumerate(shapes):
        w = [draw(shape, rng) for _ in range(2)]
        stack = jax.tree.map(lambda *leaves: np.stack(leaves), *w)
        sent[number] = Slice(stack, present[number])
    cohort = toy.cohort(mask, 9, weight=[7.0, 1, 3, 5, 2])._replace(places=places)
    method = heterofl(levels()[0], NOISY)
    found = jax.jit(lambda *given: method.aggregate(*given, cohort))(server, sent)
    total = jax.tree.map(np.zeros_like, server)
    count = jax.tree.map(np.zeros_like, server)
    for number, stack in sent.items():
        for slot, place in enumerate(places[number]):
            if place == 5 or not mask[place]:
                continue
            for path, leaf in tree.paths(stack.w).items():
                part = leaf[slot]
                corner = tuple(map(slice, part.shape))
                weight = np.ones(part.shape)
                if path.startswith("head"):
                    weight = weight * present[number, slot]
                tree.paths(total)[path][corner] += weight * part
                tree.paths(count)[path][corner] += weight
    for path, old in tree.paths(server).items():
        sums, counts = tree.paths(total)[path], tree.paths(count)[path]
        wanted = np.where(counts > 0, sums / np.maximum(counts, 1), old)
        np.testing.assert_allclose(tree.paths(found)[path], wanted, rtol=1e-5)
    # What nobody has keeps its bits.
    np.testing.assert_array_equal(found["head"]["bias"][2], server["head"]["bias"][2])


def alone(task, k, server, local=NOISY, steps=7, **options):
    """(the method, the upload of client k, the server after it reported alone)."""
    method = heterofl(task, local, **options)
    turn = toy.turn(steps=steps, client_id=k, num_clients=8)
    message = method.message(turn, server, ())
    _, upload, _ = jax.jit(method.train)(turn, message, (), toy.one(TRAIN, k))
    cohort = toy.cohort([1.0], 8)._replace(places={task.number: jnp.array([0])})
    stacked = jax.tree.map(lambda leaf: leaf[None], upload)
    return method, upload, method.aggregate(server, {task.number: stacked}, cohort)


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_of_one_client_the_slice_is_taken_and_the_rest_untouched(number):
    task = levels()[number]
    server = levels()[1].init(jax.random.key(3))
    _, upload, after = alone(task, 1, server, mask=False)
    toy.assert_same(slices.cut(after, upload.w), upload.w)
    outside = jax.tree.map(lambda m: m == 0, slices.cover(upload.w, server))
    for new, old, out in zip(
        *map(jax.tree.leaves, (after, server, outside)), strict=True
    ):
        np.testing.assert_array_equal(new[out], old[out])
    assert any(out.any() for out in jax.tree.leaves(outside)) == (number != 1)


def without_class_one():
    """The toy's examples, where client 1 has no example of class 1."""
    y = jnp.where(TRAIN.examples.y == 1, 2, TRAIN.examples.y)
    return ClientData(TRAIN.examples._replace(y=y), TRAIN.offset, TRAIN.size)


def test_parameters_of_a_class_that_nobody_has_are_unchanged(monkeypatch):
    monkeypatch.setitem(globals(), "TRAIN", without_class_one())
    server = TASK.init(jax.random.key(3))
    _, upload, after = alone(TASK, 1, server)
    np.testing.assert_array_equal(upload.present, [1, 0, 1])
    for name, leaf in after["head"].items():
        old = server["head"][name]
        np.testing.assert_array_equal(leaf[..., 1], old[..., 1])
        assert np.abs(leaf - old)[..., 0].max() > 1e-3
    # By the decay of weights alone it moved at the client.
    moved = upload.w["head"]["kernel"] - server["head"]["kernel"]
    assert np.abs(moved[:, 1]).max() > 1e-4


def test_gradients_are_cut_over_the_slice_alone():
    """One step of all examples, whose gradient is far longer than the norm."""
    task, server = levels()[2], levels()[1].init(jax.random.key(3))
    local = toy.full_batch(1, rate=0.5)
    _, upload, _ = alone(task, 1, server, local, steps=1, clip=0.01)
    step = tree.sub(upload.w, slices.cut(server, upload.w))
    assert float(jnp.sqrt(tree.square_norm(step))) == pytest.approx(0.005, rel=1e-4)


# A convolution of two widths, with static batch normalisation and a scaler.
CNN = {"channels": (4, 6), "conv": "lax"}
LOCAL = Local(0.1, batch_size=4, epochs=1, optimizer=sgd(0.9, 1e-2))


@cache
def cnns():
    tasks = [
        models.task(models.model(f"heterofl_{level}", 3, **CNN), (4, 4))
        for level in "ab"
    ]
    return link_tasks(tuple(map(toy.traced_once, tasks)))


@cache
def superset():
    """The widest CNN, with the scaler of the narrow one."""
    return models.task(network(3, (4, 6), 0.5, "static", "lax"), (4, 4))


@cache
def images():
    """Two clients of 10 and 6 images of 4x4 pixels."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(16, 4, 4)), jnp.float32)
    pool = Examples(x=x, y=jnp.asarray(rng.integers(0, 3, 16), jnp.int32))
    return ClientData(pool, jnp.array([0, 10]), jnp.array([10, 6]))


@cache
def masked():
    """(the widest model's parameters, the slice's, the mask of the slice)."""
    wide, narrow = cnns()
    server = wide.init(jax.random.key(0))
    w = slices.cut(server, shapes_of_model(narrow))
    cover = slices.cover(w, server)
    return jax.tree.map(jnp.multiply, server, cover), w, cover


def loss_of(task, present):
    def loss(params, batch, key):
        logits = task.logits(params, batch, key)
        return data_loss(task, mask_absent(logits, present), batch)

    return loss


@pytest.mark.slow
def test_a_slice_has_the_outputs_and_gradients_of_the_masked_model():
    padded, w, _ = masked()
    narrow, present = cnns()[1], jnp.array([1.0, 0, 1])
    batch = Batch.full(images().examples.x, images().examples.y)
    for key in (None, jax.random.key(1)):
        ours = narrow.logits(w, batch, key)
        theirs = superset().logits(padded, batch, key)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    ours = jax.jit(jax.grad(loss_of(narrow, present)))(w, batch, key)
    theirs = jax.jit(jax.grad(loss_of(superset(), present)))(padded, batch, key)
    toy.assert_close(ours, slices.cut(theirs, w))
    assert tree.square_norm(ours) > 0.1**2  # the clip below is felt


@pytest.mark.slow
def test_a_slice_trains_as_the_masked_model():
    """Three steps with momentum, decay, a clip that is felt, and an absent class."""
    padded, w, cover = masked()
    data = toy.one(images(), 0)
    y = jnp.where(data.examples.y == 1, 2, data.examples.y)
    data = data._replace(examples=data.examples._replace(y=y))
    turn = toy.turn(steps=3)
    method = heterofl(cnns()[1], LOCAL, clip=0.1)
    _, upload, _ = jax.jit(method.train)(turn, w, (), data)
    slope_of = jax.value_and_grad(loss_of(superset(), jnp.array([1.0, 0, 1])))

    def gradient(params, batch, key):
        loss, slope = slope_of(params, batch, key)
        return loss, jax.tree.map(jnp.multiply, slope, cover)

    def optimizer(rate):
        return optax.chain(optax.clip_by_global_norm(0.1), LOCAL.optimizer(rate))

    local = LOCAL._replace(optimizer=optimizer)
    step = jax.jit(partial(fit, None, turn=turn, local=local, gradient=gradient))
    after, _ = step(params=padded, data=data)
    toy.assert_close(by_path(upload.w), by_path(slices.cut(after, w)))
    outside = jax.tree.map(lambda leaf, m: (1 - m) * leaf, after, cover)
    assert not any(leaf.any() for leaf in jax.tree.leaves(outside))


def by_path(params):
    """The parameters without statistics."""
    kept = tree.paths(params)
    return {path: leaf for path, leaf in kept.items() if "batch_stats" not in path}


@pytest.mark.slow
def test_levels_share_a_server_of_the_largest():
    first, second, third = rounds_of_levels(rounds=2)
    shapes = shapes_of_model(levels()[1])
    for state in (first, third):
        assert jax.tree.map(jnp.shape, state.server) == jax.tree.map(jnp.shape, shapes)
    # A client of the largest level takes part: all of it moves.
    for old, new in zip(
        *map(jax.tree.leaves, (second.server, third.server)), strict=True
    ):
        assert np.abs(old - new).max() > 1e-3


def test_the_servers_model_is_evaluated_with_the_task_of_the_largest():
    methods = [heterofl(task, NOISY) for task in levels()]
    for method, task in zip(methods, levels(), strict=True):
        of_server = task_of_server(method, task)
        assert of_server.feature_shape == (6,)
    assert task_of_server(heterofl(TASK, NOISY), TASK) is TASK


def test_a_client_is_evaluated_with_its_slice_and_its_classes(monkeypatch):
    monkeypatch.setitem(globals(), "TRAIN", without_class_one())
    task = levels()[2]
    server = levels()[1].init(jax.random.key(3))
    batch = Batch.full(TRAIN.examples.x)
    data, turn = toy.one(TRAIN, 1), toy.turn()
    for mask in (True, False):
        method = heterofl(task, NOISY, mask=mask)
        evaluated = method.personal(turn, server, (), data)
        toy.assert_same(evaluated.w, slices.cut(server, evaluated.w))
        assert evaluated.w["head"]["kernel"].shape == (2, 3)
        wanted = np.array(task.predict(evaluated.w, batch))
        if mask:
            wanted[:, 1] = 0
        np.testing.assert_array_equal(method.predict(evaluated, batch), wanted)


@cache
def round_of_cnns():
    """(the methods, the server after a round): client 0 is wide, client 1 narrow."""
    # All examples of a client are one batch.
    local = LOCAL._replace(batch_size=16)
    methods = tuple(heterofl(task, local) for task in cnns())
    groups = Groups(methods, cnns(), (0, 1))
    setting = engine.Setting(methods[0], local, selection.uniform(2, 2), groups=groups)
    first = engine.init(setting, cnns()[0], 2, jax.random.key(0))
    after, _ = jax.jit(partial(engine.one_round, setting))(first, images())
    return methods, after.server


@pytest.mark.slow
def test_statistics_are_those_of_the_new_model_on_the_cohorts_examples():
    """Of the first layer, by hand: the mean of its convolution over 10 + 6 images."""
    _, server = round_of_cnns()
    layer = jax.tree.map(np.float64, server["body"]["layers_1"])
    x = np.pad(np.float64(images().examples.x), ((0, 0), (1, 1), (1, 1)))
    response = layer["bias"] + sum(
        x[:, i : i + 4, j : j + 4, None] * layer["kernel"][i, j, 0]
        for i in range(3)
        for j in range(3)
    )
    found = server["body"]["layers_2"]["BatchNorm_0"]["batch_stats"]
    np.testing.assert_allclose(found["mean"], response.mean((0, 1, 2)), atol=1e-5)
    variance = [part.var((0, 1, 2)) for part in (response[:10], response[10:])]
    wanted = np.average(variance, 0, [10, 6])
    np.testing.assert_allclose(found["var"], wanted, rtol=1e-4)


def test_training_sends_no_statistics():
    methods, server = round_of_cnns()
    turn = toy.turn()
    sent = jax.eval_shape(
        lambda: methods[1].train(
            turn, methods[1].message(turn, server, ()), (), toy.one(images(), 1)
        )
    )
    assert not by_name(sent[1])


def test_a_slice_is_evaluated_with_statistics_of_its_own():
    """Not by those of the wide model, whose channels have more inputs."""
    methods, server = round_of_cnns()
    evaluated = jax.jit(methods[1].personal)(
        toy.turn(), server, (), toy.one(images(), 1)
    )
    cut = slices.cut(server, evaluated.w)
    deep = "body/layers_6/BatchNorm_0/batch_stats/var"
    assert np.abs(by_name(evaluated.w)[deep] / by_name(cut)[deep] - 1).max() > 0.05
    toy.assert_same(by_path(evaluated.w), by_path(cut))


def test_models_that_are_no_slices_are_refused():
    tasks = [
        models.task(models.mlp(3, hidden=hidden), (3,)) for hidden in ((4,), (4, 4))
    ]
    with pytest.raises(ValueError, match="model 0 is no slice of model 1, the largest"):
        heterofl(link_tasks(tuple(tasks))[0], NOISY)
