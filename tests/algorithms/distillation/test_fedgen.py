import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import models
from pfljax.algorithms.decoupling.lg_fedavg import lg_fedavg
from pfljax.algorithms.distillation import _generator as generator
from pfljax.algorithms.distillation.fedgen import Message, Upload, fedgen
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.minibatches import minibatch
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local

GENERATOR = 4 * (35 * 256 + 2 * 256 + 4 * 256 + 4)  # noise and 3 labels to 4 features
LABELS = 4 * 3
CONFORMANCE = [
    Case("fedgen", bytes=(toy.HEAD + GENERATOR + LABELS, toy.HEAD + LABELS)),
]

TASK = toy.classifier()
TRAIN, _ = toy.ragged()
DATA = toy.one(TRAIN, 1)  # 20 examples
LOCAL = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))
RATE = 0.3
FULL = toy.full_batch(epochs=1, rate=RATE)
PARAMS = TASK.init(jax.random.key(1))
HEAD, BODY = tree.split(PARAMS, tree.matches(TASK.groups, "head"))
build = functools.partial(fedgen, hidden=8, generator_steps=5)


def sent(**changes):
    """A message with a generator that knows labels 0 and 2."""
    g = generator.init(jax.random.key(9), 3, 8, 4).g
    message = Message(head=HEAD, g=g, labels=jnp.asarray([1.0, 0, 1]))
    return message._replace(**changes)


@functools.cache
def play(method, **options):
    """The states after 0 .. 2 rounds of 5 of 8 clients."""
    built = method(TASK, LOCAL, **options)
    return toy.run_rounds(built, TASK, LOCAL, TRAIN, rounds=2, cohort=5)[0]


@pytest.mark.slow
def test_without_weights_it_is_lg_fedavg():
    """Bit for bit, whatever the generator."""
    last, wanted = play(build, alpha=0.0, beta=0.0)[-1], play(lg_fedavg)[-1]
    toy.assert_same(last.clients, wanted.clients)
    toy.assert_same(last.server.head, wanted.server)


@pytest.mark.slow
def test_the_generator_weighs_nothing_before_the_first_aggregation():
    states, wanted = play(build), play(lg_fedavg)
    toy.assert_same(states[1].server.head, wanted[1].server)
    moved = body_kernel(states[2].clients) - body_kernel(wanted[2].clients)
    assert np.abs(moved).max() > 1e-3


def test_the_generator_and_its_adam_go_on():
    """By 5 steps a round; each begins where the last one ended."""
    first, second, third = (state.server.trained for state in play(build))
    counts = [int(each.moments[1].count) for each in (first, second, third)]
    assert counts == [0, 5, 10]
    moved = [
        float(np.abs(b.g.kernel - a.g.kernel).max())
        for a, b in ((first, second), (second, third), (first, third))
    ]
    assert min(moved) > 1e-4
    assert max(moved) < 11 * 3e-4  # no step is longer than the rate


@jax.jit
def trained(message, alpha, beta, round_=0, steps=1):
    """(body, upload, metrics) of client 1; one program for all of these."""
    method = build(TASK, FULL, alpha=alpha, beta=beta)
    turn = toy.turn(jax.random.key(0), round_, steps, 1)
    return method.train(turn, message, BODY, DATA)


def body_kernel(body):
    return np.asarray(body["body"]["layers_1"]["kernel"])


def softmax(logits):
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def head_of(params):
    """(kernel, bias) as one matrix [5, 3]."""
    layer = params["head"]
    return np.r_[np.asarray(layer["kernel"]), np.asarray(layer["bias"])[None]]


def with_one(z):
    return np.c_[z, np.ones(len(z))]


def test_a_step_of_the_head_against_numpy():
    """Of 20 examples in a batch of 32: of those that pad it, only G makes features."""
    alpha, beta, t = 2.0, 3.0, 7
    message, head = sent(), head_of(HEAD)
    batch = minibatch(DATA, jnp.int32(0), derive(jax.random.key(0), "minibatches"), 32)
    key = jax.random.fold_in(derive(jax.random.key(0), "noise"), 0)
    label_key, *noise_keys = jax.random.split(derive(key, "generator"), 3)
    r = generator.draw_labels(message.labels, label_key, 32)
    assert set(np.asarray(r)) == {0, 2}
    drawn, of_labels = (
        with_one(generator.draw(message.g, labels, key, mask).z)
        for labels, key, mask in zip(
            (r, batch.y), noise_keys, (None, batch.mask), strict=True
        )
    )
    other = jnp.where(batch.mask > 0, batch.y, 1 - batch.y)  # of what pads it
    same = generator.draw(message.g, other, noise_keys[1], batch.mask).z
    np.testing.assert_array_equal(same[:20], of_labels[:20, :-1])
    z = with_one(TASK.features(PARAMS, batch, None))[:20]
    y, p = np.asarray(batch.y)[:20], softmax(z @ head)
    own = z.T @ (p - np.eye(3)[y]) / 20
    taught = drawn.T @ (softmax(drawn @ head) - np.eye(3)[np.asarray(r)]) / 32
    gap = z.T @ (p - softmax(of_labels @ head)[:20]) / 20
    _, upload, metrics = trained(message, alpha, beta, t)
    slope = own + 0.98**t * (alpha * taught + beta * gap)
    np.testing.assert_allclose(head_of(upload.head), head - RATE * slope, atol=1e-5)
    loss = -np.log(p[range(20), y]).mean()
    assert float(metrics["loss"]) == pytest.approx(loss, rel=1e-5)


def test_features_of_the_generator_move_the_head_alone():
    """And what it says of the examples' labels moves the body as well."""
    alone, without, _ = trained(sent(), 0.0, 0.0)
    body, upload, _ = trained(sent(), 5.0, 0.0)
    toy.assert_close(body, alone, 1e-6)
    assert np.abs(head_of(upload.head) - head_of(without.head)).max() > 1e-2
    body, _, _ = trained(sent(), 0.0, 5.0)
    assert np.abs(body_kernel(body) - body_kernel(alone)).max() > 1e-2


@pytest.mark.parametrize(
    ("alpha", "beta", "round_", "weights"),
    [
        (300.0, 50.0, 30, (300 * 0.98**30, 50 * 0.98**30)),
        (300.0, 5e-5, 10_000, (1e-4, 5e-5)),
    ],
)
def test_the_weights_decay_by_the_round_to_the_least(alpha, beta, round_, weights):
    late = trained(sent(), alpha, beta, round_, 2)
    early = trained(sent(), *weights, 0, 2)
    toy.assert_close(late[:2], early[:2], 1e-5)


def test_who_knows_no_label_is_not_taught():
    known, nothing = (
        trained(sent(labels=jnp.asarray(labels)), 0.0, 5.0)[0]
        for labels in ([1.0, 1, 1], [0.0, 0, 0])
    )
    alone, _, _ = trained(sent(), 0.0, 0.0)
    toy.assert_same(nothing, alone)
    assert np.abs(body_kernel(known) - body_kernel(alone)).max() > 1e-2


def test_an_upload_counts_the_labels_of_all_examples():
    _, upload, _ = trained(sent(), 0.0, 0.0)
    own = np.arange(int(DATA.offset), int(DATA.offset + DATA.size))
    wanted = np.bincount(np.asarray(DATA.examples.y)[own], minlength=3)
    np.testing.assert_array_equal(upload.counts, wanted)


def test_the_generator_learns_of_the_heads_as_they_come():
    """Not of their mean; who does not report teaches nothing, in whatever order."""
    method = build(TASK, LOCAL, generator_lr=0.01)
    server = method.init(PARAMS, 4, jax.random.key(5))
    heads = [tree.scale(HEAD, factor) for factor in (1.0, -2.0, 3.0)]
    counts = jnp.asarray([[5.0, 0, 2], [3, 1, 0], [9, 9, 9]])
    cohort = toy.cohort([1, 1, 0], round_=3, weight=[7.0, 4, 27])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *heads)
    after = jax.jit(method.aggregate)(server, Upload(stacked, counts), cohort)

    def logits(z):
        return jnp.stack([TASK.head(head, z) for head in heads[:2]])

    key = derive(cohort.key, "generator")
    rate = 0.01 * 0.98**3
    wanted = generator.train(server.trained, logits, counts[:2], key, rate, 5)
    toy.assert_close(after.trained, wanted, 1e-5)
    np.testing.assert_array_equal(after.trained.labels, [1, 0, 1])
    mean = (7 - 2 * 4) / 11 * head_of(HEAD)
    np.testing.assert_allclose(head_of(after.head), mean, rtol=1e-5)
    turned = jax.tree.map(lambda leaf: leaf[::-1], (stacked, counts))
    backwards = cohort._replace(
        ids=cohort.ids[::-1], mask=cohort.mask[::-1], weight=cohort.weight[::-1]
    )
    again = jax.jit(method.aggregate)(server, Upload(*turned), backwards)
    toy.assert_same(again.trained, after.trained)


def test_no_server_step_leaves_the_generator():
    method = build(TASK, LOCAL, generator_steps=0)
    server = method.init(PARAMS, 4, jax.random.key(5))
    stacked = jax.tree.map(lambda leaf: leaf[None], Upload(HEAD, jnp.ones(3) * 4))
    after = method.aggregate(server, stacked, toy.cohort([1]))
    toy.assert_same(after.trained.g, server.trained.g)
    assert after.trained.labels.all()


def test_a_client_is_evaluated_with_the_newest_head_on_its_own_body():
    method = build(TASK, LOCAL)
    server = method.init(PARAMS, 4, jax.random.key(5))
    server = server._replace(head=tree.scale(HEAD, 2.0))
    assert method.personal is not None
    evaluated = method.personal(toy.turn(), server, BODY, DATA)
    toy.assert_same(evaluated, tree.merge(tree.scale(HEAD, 2.0), BODY))


@pytest.mark.slow
def test_bodies_may_differ():
    """A client of two hidden layers, under a server whose own model has one."""
    deep = models.task(models.mlp(3, hidden=(5, 4)), (3,))
    body = tree.split(deep.init(jax.random.key(2)), tree.matches(deep.groups, "body"))[
        0
    ]
    first, other = build(TASK, FULL), build(deep, FULL)
    server = first.init(PARAMS, 4, jax.random.key(5))
    turn = toy.turn(jax.random.key(0), 0, 1, 1)
    message = first.message(turn, server, BODY)
    after, upload, _ = jax.jit(other.train)(turn, message, body, DATA)
    sent = jax.tree.map(jnp.shape, upload.head)
    toy.assert_same(sent, jax.tree.map(jnp.shape, HEAD))
    assert jax.tree.structure(after) == jax.tree.structure(body)
    assert other.personal is not None
    evaluated = other.personal(turn, server, after, DATA)
    z = Batch.full(np.ones((2, 3), np.float32))
    # The head of the server on the body of the client.
    wanted = TASK.head(server.head, deep.features(evaluated, z, None))
    toy.assert_close(deep.predict(evaluated, z), wanted, 1e-6)
