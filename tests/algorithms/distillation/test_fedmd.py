import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax import models
from pfljax.algorithms.distillation.fedmd import fedmd
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core.communication import trace_exchanges
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local

# For 6 public examples their numbers down and 3 logits up; then numbers and 3 means
# down. Logits are no change of anything: law "2 origin" does not apply. That steps
# matter is tested below.
SENT = (4 * 6 * (1 + 1 + 3), 4 * 6 * 3)
CONFORMANCE = [Case("fedmd", bytes=SENT, sends_statistics=True)]

TASK = toy.classifier()
TRAIN, _ = toy.ragged()
PUBLIC = toy.public()
ROWS = toy.PUBLIC
NOISY = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))
UNPREPARED = {"pretrain_epochs": 0, "pretrain_own_epochs": 0}


def built(local=NOISY, **options):
    return fedmd(TASK, local, num_public=ROWS, **options)


def played(method, rounds=2, **how):
    """The states after each round."""
    how = {"local": NOISY, "train": TRAIN} | how
    return toy.run_rounds(method, TASK, rounds=rounds, public=PUBLIC, **how)[0]


def logits(w, x):
    return perceptron.logits(w, perceptron.features(w, x))


def descended(w, x, y, steps):
    """The weights after steps on the cross-entropy of all these examples."""
    for _ in range(steps):
        slope = perceptron.cross_entropy_slope(logits(w, x), y)
        w = perceptron.stepped(w, x, slope)
    return w


def digested(w, x, consensus, steps):
    """The weights after steps on the mean absolute distance of all these examples."""
    for _ in range(steps):
        slope = np.sign(logits(w, x) - consensus) / consensus.size
        w = perceptron.stepped(w, x, slope)
    return w


def subset(order, y, count):
    """The numbers of `count` examples, by what each is of its class."""
    met = dict.fromkeys(range(3), 0)
    shares = []
    for row in order:
        label = y[row]
        shares.append((met[label] + 0.5) / (y == label).sum())
        met[label] += 1
    return [order[place] for place in np.argsort(shares, kind="stable")[:count]]


def test_fedmd_against_numpy():
    """5 of 8 clients a round take 4 of the 6 examples, all of them in every step."""
    method = built(
        perceptron.FULL,
        subset=4,
        digest_epochs=3,
        pretrain_epochs=1,
        pretrain_own_epochs=2,
    )
    states = played(method, 3, local=perceptron.FULL, cohort=5)
    clients = [perceptron.of_client(states[0].clients.w, k) for k in range(8)]
    x_public = np.float64(PUBLIC.examples.x)
    y_public = np.asarray(PUBLIC.examples.y)
    prepared = np.zeros(8)
    began_later = 0
    for before, state in itertools.pairwise(states):
        chosen = subset(np.asarray(before.server.order), y_public, 4)
        cohort = [int(k) for k in state.cohort]
        for k in cohort:
            if not prepared[k]:
                clients[k] = descended(clients[k], x_public, y_public, 1)
                clients[k] = descended(clients[k], *perceptron.examples(k), 2)
                began_later += int(before.round > 0)
                prepared[k] = 1
        sent = [logits(clients[k], x_public[chosen]) for k in cohort]
        consensus = np.mean(sent, 0)
        for k in cohort:
            clients[k] = digested(clients[k], x_public[chosen], consensus, 3)
            clients[k] = descended(clients[k], *perceptron.examples(k), 2)
        perceptron.assert_clients(state.clients.w, clients)
        np.testing.assert_allclose(
            state.server.consensus, consensus, rtol=1e-4, atol=1e-5
        )
        np.testing.assert_array_equal(state.clients.prepared, prepared)
    assert began_later


@pytest.mark.slow
def test_without_digesting_it_is_local_training_and_examples_are_drawn_anew():
    states = played(built(digest_epochs=0, **UNPREPARED))
    plain = played(alone(TASK, NOISY))
    for state, wanted in zip(states, plain, strict=True):
        toy.assert_same(state.clients.w, wanted.clients)
    orders = [np.asarray(state.server.order) for state in states]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(ROWS))
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.slow
def test_a_party_alone_digests_nothing():
    """Its consensus is what it says itself, and |0| has the slope 0.

    By plain SGD: a decay of the weights would shrink it.
    """
    plain = Local(0.1, batch_size=4, epochs=2)
    one = {
        "train": TRAIN._replace(offset=TRAIN.offset[1:2], size=TRAIN.size[1:2]),
        "local": plain,
    }
    states = played(built(plain, digest_epochs=4, **UNPREPARED), **one)
    wanted = played(alone(TASK, plain), **one)
    toy.assert_same(states[-1].clients.w, wanted[-1].clients)


def test_digesting_moves_a_party_towards_the_others():
    """A client that takes no step of its own, and whom the others contradict."""
    method = built(digest_epochs=5, **UNPREPARED).then
    turn = toy.turn(steps=0)._replace(public=PUBLIC)
    w = TASK.init(jax.random.key(3))
    batch = Batch.full(PUBLIC.examples.x)
    wanted = TASK.predict(w, batch) + jnp.array([1.0, 0, -1])
    client = method.init_client(w, 0, None)
    chosen = jnp.array([3, 0, 5, 1, 2, 4])
    message = (chosen, wanted[chosen])
    after, upload, metrics = method.train(turn, message, client, toy.one(TRAIN, 1))
    gaps = [np.abs(TASK.predict(v, batch) - wanted).mean() for v in (w, after.w)]
    assert gaps[0] == pytest.approx(2 / 3, rel=1e-5)
    assert gaps[1] < gaps[0] - 0.05
    assert gaps[1] < float(metrics["distance"]) < gaps[0]
    assert upload == ()


def test_a_server_without_examples_is_refused():
    with pytest.raises(ValueError, match="fedmd needs examples"):
        fedmd(TASK, NOISY, num_public=0)


def test_what_is_sent_knows_no_architecture():
    sent = []
    for hidden in ((4,), (6, 5, 4)):
        task = models.task(models.mlp(3, hidden=hidden), (3,))
        method = fedmd(task, perceptron.FULL, num_public=ROWS)
        sent.append(trace_exchanges(method, task, 2, (3,)))
    assert len(sent[0]) == 2
    assert sent[0] == sent[1]
