import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import toy
from pfljax.core import server_step
from pfljax.core.statistics import STATISTICS

W = {"scale": jnp.asarray([2.0, -1.0]), STATISTICS: {"mean": jnp.asarray([10.0])}}
SLOPE = {"scale": jnp.asarray([0.5, 2.0]), STATISTICS: {"mean": jnp.asarray([0.2])}}


def after(text, rate, steps=2):
    optimizer = server_step.by_name(text, rate)
    server = server_step.first(optimizer, W)
    for _ in range(steps):
        server = server_step.step(optimizer, server, SLOPE)
    return np.asarray(server.w["scale"]), float(server.w[STATISTICS]["mean"][0])


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("sgd", 2 * 0.3 * np.array([0.5, 2])),
        ("sgd:momentum=0.9", (1 + 1.9) * 0.3 * np.array([0.5, 2])),
        ("adam", 2 * 0.3 * np.array([1.0, 1])),  # of equal slopes, steps of the rate
    ],
)
def test_moments_go_on_and_statistics_take_the_whole_step(text, moved):
    scale, mean = after(text, 0.3)
    np.testing.assert_allclose(scale, [2, -1] - moved, rtol=1e-4)
    assert mean == pytest.approx(10 - 2 * 0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adamm", "unknown server optimizer 'adamm'; did you mean 'adam'"),
        ("fedadm", "unknown server optimizer 'fedadm'; did you mean 'fedadam'"),
        ("adam:learning_rat=1.0", "parameter 'learning_rat'; .* mean 'learning_rate'"),
        ("sgd:momentum=2.0", "momentum is 2.0; expected a number >= 0 and below 1"),
        ("sgd:beta=0.9", "server optimizer 'sgd': unknown parameter 'beta'; known: "),
        ("adam:b1=2.0", "b1 is 2.0; expected a number >= 0 and below 1"),
        ("sgd:learning_rate=0.0", "learning_rate is 0.0; expected a finite number > 0"),
        ("", "has no name"),
    ],
)
def test_a_wrong_optimizer_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        server_step.by_name(text, 0.1)


DELTAS = np.array([[0.5, -2.0], [0.1, 1.0], [-3.0, 0.2]], np.float32)
V = {  # the rules of Algorithm 2
    "fedadagrad": lambda v, d: v + d**2,
    "fedadam": lambda v, d: 0.8 * v + 0.2 * d**2,
    "fedyogi": lambda v, d: v - 0.2 * d**2 * np.sign(v - d**2),
}


@pytest.mark.parametrize("name", V)
def test_the_adaptive_ones_are_algorithm_2(name):
    """Reddi et al., 2021, three rounds; of Adagrad b1 is 0 unless it is given."""
    b2 = "" if name == "fedadagrad" else ",b2=0.8"
    optimizer = server_step.by_name(f"{name}:learning_rate=0.3,b1=0.7,tau=0.05{b2}")
    server = server_step.first(optimizer, {"w": jnp.asarray([2.0, -1.0])})
    x = np.array([2.0, -1.0])
    m = np.zeros(2)
    v = np.full(2, 0.05**2)
    for d in DELTAS:
        server = server_step.step(optimizer, server, {"w": jnp.asarray(-d)})
        m = 0.7 * m + 0.3 * d
        v = V[name](v, d)
        x = x + 0.3 * m / (np.sqrt(v) + 0.05)
    np.testing.assert_allclose(server.w["w"], x, rtol=1e-5)


def test_fedavgm_keeps_a_momentum():
    optimizer = server_step.by_name("fedavgm:momentum=0.5")
    server = server_step.first(optimizer, {"w": jnp.zeros(2)})
    for d in DELTAS:
        server = server_step.step(optimizer, server, {"w": jnp.asarray(-d)})
    velocity = 0.25 * DELTAS[0] + 0.5 * DELTAS[1] + DELTAS[2]
    moved = DELTAS[0] + 0.5 * DELTAS[0] + DELTAS[1] + velocity
    np.testing.assert_allclose(server.w["w"], moved, rtol=1e-5)


@pytest.mark.slow
def test_sgd_of_rate_1_is_no_server_optimizer():
    def optimized(task, local, text):
        method = fedavg(task, local, finetune=1)
        return server_step.optimize(method, server_step.by_name(text))

    plain, _ = toy.run_quadratic(fedavg)
    same, _ = toy.run_quadratic(optimized, text="sgd:learning_rate=1.0")
    half, _ = toy.run_quadratic(optimized, text="sgd:learning_rate=0.5")
    w, *_ = jax.tree.leaves(plain[-1].server)
    w_same, *_ = jax.tree.leaves(same[-1].server.w)
    w_half, *_ = jax.tree.leaves(half[-1].server.w)
    np.testing.assert_allclose(w_same, w, rtol=1e-5)
    assert not np.allclose(w_half, w, rtol=1e-2)
