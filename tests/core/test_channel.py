"""What may happen to an upload, against NumPy, and its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfljax import engine, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.local import local
from pfljax.conformance import toy
from pfljax.core import channel
from pfljax.core.types import Cohort
from pfljax.registry import parse

TASK, LOCAL = toy.quadratic(), toy.full_batch()


def after_a_round(method, names, reports=(1, 1, 1, 1)):
    """(state before, state after) of one round of all quadratic clients."""
    everybody = selection.uniform(4, 4)._replace(
        choose=lambda state, key: jnp.arange(4),
        work=lambda key, steps: (steps, jnp.asarray(reports, jnp.float32)),
    )
    setting = engine.Setting(
        algorithm=method(TASK, LOCAL),
        local=LOCAL,
        selection=everybody,
        channel=channel.make([parse(name) for name in names]),
    )
    state = engine.init(setting, TASK, 4, jax.random.key(0))
    run = jax.jit(lambda state, data: engine.one_round(setting, state, data)[0])
    return state, run(state, toy.quadratic_clients())


def uploads_of(state):
    """What each client sends of FedAvg, [4, 3], by NumPy."""
    w = toy.flat(state.server)
    descended = [toy.descend(w, lambda x, k=k: toy.gradient(k, x)) for k in range(4)]
    return w, np.stack(descended)


@settings(max_examples=20, deadline=None)
@given(norm=st.floats(0.01, 10), seed=st.integers(0, 99))
def test_clip_scales_the_change_to_the_norm(norm, seed):
    rng = np.random.default_rng(seed)
    message, upload = rng.normal(size=(2, 3)).astype(np.float32)
    send = channel.clip(norm=norm).send
    clipped = send((), jax.random.key(0), {"w": message}, {"w": upload})["w"]
    length = np.linalg.norm(upload - message)
    wanted = message + (upload - message) * min(1, norm / length)
    np.testing.assert_allclose(clipped, wanted, rtol=1e-4, atol=1e-5)
    if length < norm:
        np.testing.assert_array_equal(clipped, upload)


def test_clip_of_what_is_a_difference_already_is_of_the_whole():
    """SCAFFOLD's upload: the message has another structure."""
    server = scaffold(TASK, LOCAL).init(toy.unflat(np.ones(3)), 4, None)
    upload = {"dy": jnp.asarray([3.0, 4])}
    sent = channel.clip(norm=1.0).send((), jax.random.key(0), server, upload)
    np.testing.assert_allclose(sent["dy"], [0.6, 0.8], rtol=1e-6)


def test_clipped_uploads_are_what_the_server_averages():
    before, after = after_a_round(fedavg, ["clip:norm=0.5"])
    w, uploads = uploads_of(before)
    change = uploads - w
    change *= np.minimum(1, 0.5 / np.linalg.norm(change, axis=1))[:, None]
    wanted = w + np.average(change, axis=0, weights=toy.COUNTS)
    np.testing.assert_allclose(toy.flat(after.server), wanted, rtol=1e-5)


@pytest.mark.parametrize("names", [["clip:norm=1e6"], ["gaussian:std=0.0"]])
def test_limits_of_a_channel_are_no_channel(names):
    toy.assert_same(after_a_round(fedavg, names)[1].server,
                    after_a_round(fedavg, [])[1].server)  # fmt: skip


def test_noise_has_its_deviation_and_differs_by_client():
    upload = {"w": jnp.zeros(40_000), "count": jnp.int32(3)}
    send = channel.gaussian(std=0.2).send
    noisy = [send((), jax.random.key(k), upload, upload) for k in range(2)]
    values = np.stack([each["w"] for each in noisy])
    assert values.std() == pytest.approx(0.2, rel=0.02)
    assert abs(np.corrcoef(values)[0, 1]) < 0.02
    assert noisy[0]["count"] == 3  # what is no float travels as it is
    _, after = after_a_round(fedavg, ["gaussian:std=0.5"])
    _, plain = after_a_round(fedavg, [])
    apart = toy.flat(after.server) - toy.flat(plain.server)
    assert 0.01 < np.abs(apart).max() < 3


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("median", lambda uploads: np.median(uploads, axis=0)),
        ("trimmed_mean:trim=0.34", lambda uploads: np.median(uploads, axis=0)),
        ("trimmed_mean:trim=0.0", lambda uploads: uploads.mean(0)),
    ],
)
def test_a_robust_value_takes_the_place_of_the_mean(name, oracle):
    """Of those who reported, whatever their rows."""
    before, after = after_a_round(fedavg, [name], reports=(1, 0, 1, 1))
    _, uploads = uploads_of(before)
    wanted = oracle(uploads[[0, 2, 3]])
    np.testing.assert_allclose(toy.flat(after.server), wanted, rtol=1e-5, atol=1e-6)


def test_krum_of_fewer_reports_than_it_chooses_is_their_mean():
    before, after = after_a_round(fedavg, ["krum:chosen=9"], reports=(1, 0, 1, 1))
    _, uploads = uploads_of(before)
    wanted = uploads[[0, 2, 3]].mean(0)
    np.testing.assert_allclose(toy.flat(after.server), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", channel.CHANNELS)
def test_a_method_that_sends_nothing_takes_any_channel(name):
    toy.assert_same(after_a_round(local, [name])[1].clients,
                    after_a_round(local, [])[1].clients)  # fmt: skip


def test_channels_act_in_the_order_given():
    """Noise of length 1e4 is clipped only where the clipping comes after it."""
    upload = {"w": jnp.zeros(3)}
    lengths = []
    for names in (["gaussian:std=1e4", "clip:norm=1.0"], ["clip", "gaussian:std=1e4"]):
        chain = channel.make([parse(name) for name in names])
        sent = chain.send(chain.init(), jax.random.key(0), upload, upload)
        lengths.append(float(jnp.linalg.norm(sent["w"])))
    assert lengths[0] == pytest.approx(1, rel=1e-5)
    assert lengths[1] > 100


def test_a_channel_keeps_its_state_in_the_run():
    """One that counts uploads, beside one that remembers nothing."""

    def receive(state, key, uploads, cohort: Cohort):
        return uploads, state + cohort.mask.sum()

    counting = channel.clip(norm=1.0)._replace(
        init=lambda: jnp.float32(0), receive=receive
    )
    both = channel.chain([channel.clip(norm=9.0), counting])
    setting = engine.Setting(
        fedavg(TASK, LOCAL), LOCAL, selection.uniform(3, 4), channel=both
    )
    state = engine.init(setting, TASK, 4, jax.random.key(0))
    state, _ = engine.compile_rounds(setting, 5)(state, toy.quadratic_clients(), 4)
    assert state.channel == ((), 12)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["clip:norm=0"], "norm is 0; expected a number > 0"),
        (["gaussian:std=-1.0"], "std is -1.0; expected a number >= 0"),
        (["cilp"], "unknown channel 'cilp'.*did you mean 'clip'"),
        (["clip:size=1"], "unknown parameter 'size'"),
        (["trimmed_mean:trim=0.5"], "expected 0 <= trim < 0.5"),
        (["krum:byzantine=-1"], "byzantine is -1; expected at least 0"),
        (["krum:chosen=0"], "chosen is 0; expected at least 1"),
    ],
)
def test_bad_channels_are_told(names, expected):
    with pytest.raises(ValueError, match=expected):
        channel.make([parse(name) for name in names])
