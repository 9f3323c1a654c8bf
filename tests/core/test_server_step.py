import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.core import server_step
from pfljax.core.statistics import STATISTICS

W = {"scale": jnp.asarray([2.0, -1.0]), STATISTICS: {"mean": jnp.asarray([10.0])}}
SLOPE = {"scale": jnp.asarray([0.5, 2.0]), STATISTICS: {"mean": jnp.asarray([0.2])}}


def after(text, rate, steps=2):
    optimizer = server_step.by_name(text, rate)
    server = server_step.first(optimizer, W)
    for _ in range(steps):
        server = server_step.stepped(optimizer, server, SLOPE)
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
        ("adamm", "unknown optimizer 'adamm'; known: sgd, and those of optax"),
        ("sgd:momentum=2.0", "momentum is 2.0; expected a number >= 0 and below 1"),
        ("sgd:beta=0.9", "optimizer 'sgd:beta=0.9' cannot be built .*beta"),
        ("adam:b1=2.0", "b1 is 2.0; expected a number >= 0 and below 1"),
        ("", "has no name"),
    ],
)
def test_a_wrong_optimizer_is_told(text, message):
    with pytest.raises(ValueError, match=message):
        server_step.by_name(text, 0.1)
