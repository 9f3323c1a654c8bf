import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms.distillation import _low_rank as low_rank
from pfljax.algorithms.distillation.fedkd import fedkd
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core import aggregation
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local

CONFORMANCE = [
    Case("fedkd", bytes=(toy.WHOLE + 4, toy.WHOLE)),
]

RATE = 0.3
STEPS = 3
START, END = 0.5, 0.9  # of the energy, over 2 rounds
TASK = toy.classifier()
TRAIN, _ = toy.ragged()
CLIENT = jnp.int32(1)
LOCAL = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))


def linear_task(width, scale):
    """Logits (x / scale) f h without biases: f32[3, width] and f32[width, 3]."""
    body, head = nn.Dense(width, use_bias=False), nn.Dense(3, use_bias=False)
    return models.task(models.Network(body, head), (3,), scale=scale)


def kernels(params):
    return tuple(np.asarray(params[part]["kernel"]) for part in ("body", "head"))


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def slopes(x, y, own, other, z, wanted):
    """(slope in the logits, slope in z) of CE + (KL + MSE) / q, q a function of own."""
    n, p, p_other = len(x), np.exp(own), np.exp(other)
    ce, ce_other = (-(y * log).sum(1).mean() for log in (own, other))
    gap = (p_other * (other - own)).sum(1).mean() + ((z - wanted) ** 2).mean()
    q = ce + ce_other
    of_logits = ((p - y) * (1 - gap / q**2) + (p - p_other) / q) / n
    return of_logits, 2 * (z - wanted) / z.size / q


def steps_of(w, v, projection, x, y):
    """FedKD's steps on linear models; the mentee sees x / 2."""
    for _ in range(STEPS):
        (f, h), (d, g) = w, v
        z_w, z_v = x @ f, x / 2 @ d
        projected = z_v @ projection
        own, other = log_softmax(z_w @ h), log_softmax(z_v @ g)
        of_w, of_z = slopes(x, y, own, other, z_w, projected)
        of_v, of_projected = slopes(x, y, other, own, projected, z_w)
        slope_f, slope_h = x.T @ (of_w @ h.T + of_z), z_w.T @ of_w
        slope_d = (x / 2).T @ (of_v @ g.T + of_projected @ projection.T)
        slope_g, slope_p = z_v.T @ of_v, z_v.T @ of_projected
        w = f - RATE * slope_f, h - RATE * slope_h
        v = d - RATE * slope_d, g - RATE * slope_g
        projection = projection - RATE * slope_p
    return w, v, projection


def sent(a, energy):
    """(the matrix as it arrives, numbers)."""
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    share = np.cumsum(s**2) / (s**2).sum()
    k = int((share < energy).sum()) + 1
    if k * (sum(a.shape) + 1) >= a.size:
        return a, a.size
    return (u[:, :k] * s[:k]) @ vt[:k], k * (sum(a.shape) + 1)


def test_fedkd_against_numpy():
    """Mentors of width 4 and mentees of width 6, whose change may be of rank 1."""
    task = linear_task(4, 1.0)._replace(proxy=linear_task(6, 2.0))
    local = toy.full_batch(epochs=STEPS, rate=RATE)
    method = fedkd(task, local, energy_start=START, energy_end=END, rounds=2)
    states, _ = toy.run_rounds(method, task, local, TRAIN, rounds=2, cohort=3)
    v = kernels(states[0].server.v)
    w = dict.fromkeys(range(8), tuple(k[0] for k in kernels(states[0].clients.w)))
    projections = np.array(states[0].clients.projection)
    assert projections.shape == (8, 6, 4)
    assert not np.allclose(projections[0], projections[1])
    assert states[0].server.size == 4 * 36
    sizes = []
    for t, state in enumerate(states[1:]):
        energy, changes = START + t / 2 * (END - START), []
        for k in np.asarray(state.cohort):
            own = np.arange(int(TRAIN.offset[k]), int(TRAIN.offset[k] + TRAIN.size[k]))
            x, y = (np.asarray(leaf)[own] for leaf in TRAIN.examples)
            after = steps_of(w[k], v, projections[k], x, np.eye(3)[y])
            w[k], mentee, projections[k] = after
            change = [b - a for a, b in zip(v, mentee, strict=True)]
            changes.append([sent(a, energy)[0] for a in change])
            for found, wanted in zip(kernels(state.clients.w), w[k], strict=True):
                np.testing.assert_allclose(found[k], wanted, rtol=1e-4, atol=1e-5)
        mean = [np.mean(each, 0) for each in zip(*changes, strict=True)]
        arrived = [sent(a, energy) for a in mean]
        v = tuple(a + b for a, (b, _) in zip(v, arrived, strict=True))
        for found, wanted in zip(kernels(state.server.v), v, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        found = state.clients.projection
        np.testing.assert_allclose(found, projections, rtol=1e-4, atol=1e-5)
        sizes.append(4 * sum(size for _, size in arrived))
        assert float(state.server.size) == sizes[-1]
    assert min(sizes) < 4 * 36  # low rank was shorter in one round at least


def played(method):
    """The states of a method that trains two models, or one, from one start."""
    params = TASK.init(jax.random.key(3))
    task = TASK._replace(init=lambda key: params)
    built = method(task, LOCAL)
    if method is fedkd:
        built = method(task, LOCAL, energy_start=1.0, energy_end=1.0)
    if method is fedavg:
        built = built._replace(aggregate=aggregation.averaging("uniform"))
    return toy.run_rounds(built, task, LOCAL, TRAIN, rounds=2, cohort=5)[0]


@pytest.mark.slow
def test_without_distillation_and_loss_each_of_the_two_trains_alone(monkeypatch):
    """The mentors are local training, and the mentee is uniform FedAvg."""
    distance = "pfljax.algorithms.distillation.fedkd.distance"
    monkeypatch.setattr(distance, lambda own, other, batch: 0.0)
    last = played(fedkd)[-1]
    toy.assert_close(last.clients.w, played(alone)[-1].clients, 1e-6)
    toy.assert_close(last.server.v, played(fedavg)[-1].server, 1e-5)


def test_what_a_client_sends_is_counted():
    """And what it receives: the whole model at first, the last change afterwards."""
    method = fedkd(TASK, LOCAL, energy_start=0.9, energy_end=0.9)
    server = method.init(TASK.init(jax.random.key(0)), 4, jax.random.key(1))
    client = method.init_client(TASK.init(jax.random.key(0)), CLIENT, jax.random.key(2))
    turn = toy.turn(jax.random.key(0), 0, 5, 1)
    data = toy.one(TRAIN, 1)
    train = jax.jit(method.train)
    _, upload, metrics = train(turn, server, client, data)
    assert float(metrics["received_bytes"]) == toy.WHOLE
    # What arrives is of low rank already, so it weighs the same once more.
    again, size = low_rank.compress(upload, 0.9)
    toy.assert_close(again, upload, 1e-6)
    assert float(metrics["sent_bytes"]) == float(size) < toy.WHOLE


def test_the_loss_is_of_the_mentor():
    task = linear_task(4, 1.0)._replace(proxy=linear_task(6, 2.0))
    local = toy.full_batch(epochs=1, rate=RATE)
    method = fedkd(task, local)
    w, turn = task.init(jax.random.key(0)), toy.turn(jax.random.key(0), 0, 1, 1)
    server = method.init(w, 4, jax.random.key(1))
    client = method.init_client(w, CLIENT, jax.random.key(2))
    data = toy.one(TRAIN, 1)
    _, _, metrics = jax.jit(method.train)(turn, server, client, data)
    own = np.arange(int(data.offset), int(data.offset) + 20)
    batch = Batch.full(*(np.asarray(leaf)[own] for leaf in data.examples))
    wanted = float(task.loss(w, batch, None))
    assert float(metrics["loss"]) == pytest.approx(wanted, rel=1e-5)
