import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.core.types import Batch

KEY = jax.random.key(0)


class Dropping(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(16)(x)
        return nn.Dropout(0.5, deterministic=not self.has_rng("dropout"))(x)


class Counting(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.variable("seen", "rows", lambda: np.zeros(()))
        return x


class Loose(nn.Module):
    @nn.compact
    def __call__(self, x):
        body, head = nn.Dense(3, name="body"), nn.Dense(2, name="head")
        return nn.Dense(2, name="extra")(head(body(x)))


class Words(nn.Module):
    vocab: int | None = None

    @nn.compact
    def __call__(self, x, train=None):
        deterministic = {} if train is None else {"deterministic": not train}
        z = nn.Embed(30, 8)(x).mean(1)
        return nn.Dense(2)(nn.Dropout(0.5)(z, **deterministic))


def small(**options):
    return models.task(models.mlp(3, hidden=(5,)), (4,), **options)


def batch():
    x = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    return Batch(x, np.arange(6) % 3, np.float32([1, 1, 0, 1, 0, 1]))


def test_loss_is_the_mean_cross_entropy_of_the_examples_that_count():
    task, examples = small(), batch()
    params = task.init(KEY)
    logits = np.asarray(task.predict(params, examples), np.float64)
    log_sums = np.log(np.exp(logits).sum(1))
    entropy = log_sums - logits[np.arange(6), examples.y]
    expected = entropy[examples.mask > 0].mean()
    np.testing.assert_allclose(task.loss(params, examples, KEY), expected, rtol=1e-5)


def test_padded_examples_change_neither_loss_nor_gradient():
    task, examples = small(), batch()
    params = task.init(KEY)
    other = examples._replace(x=np.where(examples.mask[:, None] > 0, examples.x, 99))
    compute = jax.jit(jax.value_and_grad(task.loss))
    a, b = compute(params, examples, KEY), compute(params, other, KEY)
    for one, same in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, same)


def test_a_batch_without_examples_has_no_loss():
    task, examples = small(), batch()
    empty = examples._replace(mask=jnp.zeros(6))
    assert task.loss(task.init(KEY), empty, KEY) == 0


def test_x_is_normalised_inside():
    params = small().init(KEY)
    x = np.random.default_rng(0).integers(0, 256, (3, 4)).astype(np.uint8)
    shift, scale = np.arange(4.0), np.array([1.0, 2.0, 4.0, 8.0])
    raw = small(shift=shift, scale=scale).predict(params, Batch.full(x))
    done = small().predict(params, Batch.full((x - shift) / scale))
    np.testing.assert_allclose(raw, done, rtol=1e-5, atol=1e-5)


def test_dropout_is_on_in_the_loss_alone_and_follows_the_key():
    task = models.task(models.Network(Dropping(), nn.Dense(3)), (4,))
    params, examples = task.init(KEY), batch()
    losses = [float(task.loss(params, examples, jax.random.key(i))) for i in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]
    predict, head = task.predict, task.head
    np.testing.assert_array_equal(predict(params, examples), predict(params, examples))
    logits = head(params, task.features(params, examples, None))
    np.testing.assert_array_equal(predict(params, examples), logits)


def test_logits_and_features_are_in_the_mode_of_their_key():
    task = models.task(models.Network(Dropping(), nn.Dense(3)), (4,))
    params, examples = task.init(KEY), batch()
    assert task.num_classes == 3
    for part in (task.logits, task.features):
        one, same, other = (
            part(params, examples, jax.random.key(i)) for i in (1, 1, 2)
        )
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)
        assert not np.array_equal(one, part(params, examples, None))
    trained = task.logits(params, examples, KEY)
    log_p = jax.nn.log_softmax(trained)[np.arange(len(examples.y)), examples.y]
    expected = -np.sum(examples.mask * log_p) / examples.mask.sum()
    np.testing.assert_allclose(task.loss(params, examples, KEY), expected, rtol=1e-6)
    np.testing.assert_array_equal(
        task.logits(params, examples, None), task.predict(params, examples)
    )


def test_params_are_plain_dicts_and_init_follows_the_key():
    task = small()
    params = task.init(KEY)
    assert type(params) is dict
    assert type(params["body"]["layers_1"]) is dict
    same, other = task.init(KEY), task.init(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, params, same)
    assert (params["head"]["kernel"] != other["head"]["kernel"]).all()


def test_features_need_the_body_alone():
    task, x = small(), batch().x
    params = task.init(KEY)
    features = task.features({"body": params["body"]}, Batch.full(x), None)
    logits = task.head({"head": params["head"]}, features)
    np.testing.assert_array_equal(logits, task.predict(params, Batch.full(x)))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Dense, "expected an instance"),
        (
            models.Network(nn.Dense, nn.Dense(2)),
            "expected a module, such as flax.linen",
        ),
        (
            models.Network(Counting(), nn.Dense(3)),
            r"collections \[\'seen\'\], expected params",
        ),
    ],
)
def test_modules_that_are_no_model_are_named(module, message):
    with pytest.raises(ValueError, match=message):
        models.task(module, (4,))


@pytest.mark.parametrize(
    "module",
    [
        Loose(),
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in (nn.Dense(2), Words(), Words(vocab=30))
        ),
    ],
)
def test_a_module_without_body_and_head_is_trained_whole(module):
    is_words = isinstance(module, Words)
    task = models.task(module, (4,), scale=9.0)
    models.check_task(task, (4,), 2)
    assert {*jax.tree.leaves(task.groups)} == {"body"}
    assert (task.num_classes, task.vocab) == (2, 30 if is_words else None)
    params = task.init(KEY)
    batch = Batch.full(jnp.arange(24, dtype=jnp.uint8).reshape(6, 4))
    x = batch.x.astype(jnp.int32) if is_words else batch.x / 9.0
    logits = module.apply(
        {"params": params}, x, **({"train": False} if is_words else {})
    )
    np.testing.assert_allclose(task.predict(params, batch), logits, rtol=1e-5)
    losses = [float(task.loss(params, batch, jax.random.key(i))) for i in (1, 1, 2)]
    assert losses[0] == losses[1]
    assert (losses[0] != losses[2]) == is_words
    for part in (task.features, lambda *args: task.head(*args[:2])):
        with pytest.raises(ValueError, match=r"return `self\.head\(self\.body\(x\)\)`"):
            part(params, batch, None)


def test_a_task_is_held_to_the_shape_and_the_classes():
    models.check_task(small(), (4,), 3)
    with pytest.raises(
        ValueError, match=r"shape \(1, 3\) for one example, expected \(1, 4\)"
    ):
        models.check_task(small(), (4,), 4)
    with pytest.raises(ValueError, match=r"expected examples of \(4,\)"):
        models.check_task(small(), (5,), 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "known: cross_entropy"),
        ({"scale": 0.0}, "scale has a zero"),
        ({"shift": np.zeros(3)}, r"shift has shape \(3,\)"),
        ({"shift": np.zeros((2, 4))}, r"broadcasts to an example, \(4,\)"),
        ({"shift": np.nan}, "finite numbers"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options)


def test_examples_of_another_shape_are_named():
    task = small()
    with pytest.raises(ValueError, match=r"shape \(2, 2, 2\), expected examples of"):
        task.predict(task.init(KEY), Batch.full(jnp.zeros((2, 2, 2))))
