"""Channels for uploads, compared with NumPy and at their limits."""

import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import given, settings
from hypothesis import strategies as st

import declared
from pfljax import algorithms, channel, engine, models, selection
from pfljax.algorithms.clustering import ifca as ifca_file
from pfljax.algorithms.clustering.ifca import ifca
from pfljax.algorithms.decoupling import lg_fedavg as lg_file
from pfljax.algorithms.decoupling.lg_fedavg import Kept, lg_fedavg
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model.scaffold import Upload, scaffold
from pfljax.algorithms.local import local
from pfljax.algorithms.multi_task.fedamp import fedamp
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.communication import trace_exchanges
from pfljax.core.components import parse
from pfljax.core.local_statistics import drop, keep
from pfljax.core.types import Cohort, message_origin
from uplink import SENDER, sent_by

TASK, LOCAL = toy.quadratic(), toy.full_batch()


def after_a_round(method, names, reports=(1, 1, 1, 1)):
    """(state before, state after) of one round of all quadratic clients."""
    everybody = selection.uniform(4, 4)._replace(
        choose=lambda state, key: jnp.arange(4),
        work=lambda state, key, ids, steps: (steps, jnp.asarray(reports, jnp.float32)),
    )
    algorithm = method(TASK, LOCAL)
    through = channel.make([parse(name) for name in names])
    if through is not None:
        exchanges = trace_exchanges(algorithm, TASK, 4, (4,))
        through, algorithm = channel.fit(through, algorithm, exchanges)
    setting = engine.Setting(algorithm, LOCAL, everybody, channel=through)
    state = engine.init(setting, TASK, 4, jax.random.key(0))
    run = jax.jit(lambda state, data: engine.one_round(setting, state, data)[0])
    return state, run(state, toy.quadratic_clients())


@cache
def without_channels(method):
    """The state after that round, where nothing stands between."""
    return after_a_round(method, [])[1]


def uploads_of(state):
    """The server's model and each client's upload in FedAvg, [4, 3], by NumPy."""
    w = toy.flat(state.server)
    descended = [toy.descend(w, lambda x, k=k: toy.gradient(k, x)) for k in range(4)]
    return w, np.stack(descended)


@settings(max_examples=20, deadline=None)
@given(norm=st.floats(0.01, 10), seed=st.integers(0, 99))
def test_clip_scales_the_change_to_the_norm(norm, seed):
    rng = np.random.default_rng(seed)
    message, upload = rng.normal(size=(2, 3)).astype(np.float32)
    clipped = sent_by(channel.clip(norm=norm)(), {"w": message}, {"w": upload})["w"]
    length = np.linalg.norm(upload - message)
    wanted = message + (upload - message) * min(1, norm / length)
    np.testing.assert_allclose(clipped, wanted, rtol=1e-4, atol=1e-5)
    if length < norm:
        np.testing.assert_array_equal(clipped, upload)


def test_counts_and_flags_are_no_coordinates():
    upload = {"new": jnp.asarray(True), "count": jnp.int32(9), "w": jnp.ones(4)}
    origin = jax.tree.map(jnp.zeros_like, upload)
    for name, changed in [("clip:norm=1.0", 0.5 * np.ones(4)), ("gaussian:std=0", 1)]:
        sent = sent_by(channel.make([parse(name)]), origin, upload)
        assert sent["new"].dtype == bool
        assert sent["count"].dtype == jnp.int32
        assert (sent["new"], sent["count"]) == (True, 9)
        np.testing.assert_allclose(sent["w"], changed, rtol=1e-6)


def through(name, method, message, client, upload):
    """The upload behind a channel."""
    only = channel.make([parse(name)])
    state = only.init(channel.Start(jax.random.key(0), 4))
    sent, _ = channel.send(only, method, state, SENDER, message, client, client, upload)
    return sent


def an_exchange(method):
    """(message, client, upload) of client 0 before it ever took part; any upload."""
    task = toy.classifier()
    params = task.init(jax.random.key(0))
    server = method.init(params, 4, jax.random.key(1))
    client = method.init_client(params, jnp.int32(0), jax.random.key(2))
    message = method.message(toy.turn(), server, client)
    shapes = trace_exchanges(method, task, 4, (3,))[0].upload
    rng = np.random.default_rng(0)

    def any_of(leaf):
        return jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype)

    return message, client, jax.tree.map(any_of, shapes)


# Of methods whose changes begin elsewhere than at the message; other options of a
# method send the same kinds of leaves.
CASES = [
    first
    for name, (first, *_) in declared.of_all().items()
    if "origin" in inspect.getsource(inspect.getmodule(algorithms.method(name)))
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_clip_of_any_method_is_of_what_a_client_changed(case):
    """A large norm changes no bit; a tiny one leaves the origin, and what has none."""
    factory = algorithms.method(case.name)
    options = {**case.options, **toy.run_options(factory, rounds=2)}
    method = factory(toy.classifier(), LOCAL, **options)
    message, client, upload = an_exchange(method)
    same = through("clip:norm=1e30", method, message, client, upload)
    toy.assert_same(same, upload)
    start = through("clip:norm=1e-30", method, message, client, upload)
    origin = method.origin(message, client, upload)
    wanted = jax.tree.map(lambda a, b: a if b is None else b, upload, origin)
    toy.assert_close(start, wanted, tolerance=1e-20)


def test_a_difference_is_clipped_whole():
    method = scaffold(TASK, LOCAL)
    server = method.init(toy.unflat(np.ones(3)), 4, None)
    nothing = toy.unflat(np.zeros(3))
    upload = Upload(dy=toy.unflat([3, 4, 0]), dc=nothing)
    sent = through("clip:norm=1.0", method, server, nothing, upload)
    np.testing.assert_allclose(toy.flat(sent.dy), [0.6, 0.8, 0], rtol=1e-6)


def test_ifca_is_clipped_and_noised_around_the_model_that_was_trained():
    method = ifca(TASK, LOCAL, clusters=3)
    models = toy.unflat([[9, 9, 9], [5, 5, 5], [1, 1, 1]])
    choice = jnp.asarray([0.0, 1, 0])
    upload = ifca_file.Upload(params=toy.unflat([5, 5, 8]), choice=choice)
    sent = through("clip:norm=1.0", method, models, (), upload)
    np.testing.assert_allclose(toy.flat(sent.params), [5, 5, 6], rtol=1e-6)
    noisy = through("gaussian:std=0.5", method, models, (), upload)
    assert (toy.flat(noisy.params) != [5, 5, 8]).all()
    for each in (sent, noisy):
        np.testing.assert_array_equal(each.choice, choice)


def test_a_newcomers_body_is_a_change_of_the_body_that_it_had():
    method = lg_fedavg(TASK, LOCAL, mean_body=True)
    head = {"body": None, "head": jnp.ones(1)}
    body = {"body": jnp.asarray([5.0, 5]), "head": None}
    sums = {True: [0, 0.0], False: [5, 5.0]}
    for trained, start in sums.items():
        keep = Kept(body=body, trained=jnp.bool_(trained))
        change = {"body": jnp.asarray(start) + jnp.asarray([3.0, 4]), "head": None}
        upload = lg_file.Upload(head=head, change=change, is_new=~keep.trained)
        sent = through("clip:norm=1.0", method, head, keep, upload)
        moved = np.asarray(sent.change["body"]) - start
        np.testing.assert_allclose(moved, [0.6, 0.8], rtol=1e-5)


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "krum"])
def test_uploads_with_parts_that_are_no_change_take_no_robust_value(name):
    says = f"channel '{name}' replaces .* have parts that are no change: choice; ch"
    with pytest.raises(ValueError, match=says):
        after_a_round(ifca, [name])
    with pytest.raises(ValueError, match="no change: is_new; choose another"):
        after_a_round(partial(lg_fedavg, mean_body=True), [name])


@pytest.mark.parametrize("channels", [["median"], ["clip:norm=1.0", "krum"]])
def test_a_server_that_needs_each_upload_takes_no_robust_value(channels):
    with pytest.raises(ValueError, match="each client's own upload; choose"):
        after_a_round(fedamp, channels)


def test_an_upload_without_an_origin_is_refused_before_anything_runs():
    method = scaffold(TASK, LOCAL)._replace(origin=message_origin)
    with pytest.raises(
        ValueError, match=r"the shapes of the message; .*Algorithm\.origin"
    ):
        channel.count_traffic(method, TASK, 4, (4,), channel.clip()())
    channel.count_traffic(method, TASK, 4, (4,))


@pytest.mark.parametrize("wrap", [keep, drop])
def test_statistics_that_are_not_sent_have_no_origin(wrap):
    """The messages of `drop` have them, its uploads do not."""
    network = nn.Sequential([nn.Dense(4), nn.BatchNorm(momentum=0.9), nn.relu])
    task = models.task(models.Network(network, nn.Dense(3)), (3,))
    method = wrap(fedavg(task, LOCAL))
    exchanges = trace_exchanges(method, task, 4, (3,))
    channel.check(channel.clip()(), method, task, exchanges, 4)
    (exchange,) = exchanges
    assert tree.nbytes(exchange.origin) == tree.nbytes(exchange.upload)


def test_clipped_uploads_are_what_the_server_averages():
    before, after = after_a_round(fedavg, ["clip:norm=0.5"])
    w, uploads = uploads_of(before)
    change = uploads - w
    change *= np.minimum(1, 0.5 / np.linalg.norm(change, axis=1))[:, None]
    wanted = w + np.average(change, axis=0, weights=toy.COUNTS)
    np.testing.assert_allclose(toy.flat(after.server), wanted, rtol=1e-5)


@pytest.mark.parametrize("names", [["clip:norm=1e6"], ["gaussian:std=0.0"]])
def test_limits_of_a_channel_are_no_channel(names):
    after = after_a_round(fedavg, names)[1]
    toy.assert_same(after.server, without_channels(fedavg).server)


def test_noise_has_its_deviation_and_differs_by_client():
    upload = {"w": jnp.zeros(40_000), "count": jnp.int32(3)}
    noise = channel.gaussian(std=0.2)()
    noisy = [sent_by(noise, upload, upload, seed=k) for k in range(2)]
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
    ],
)
def test_a_robust_value_takes_the_place_of_the_mean(name, oracle):
    """The mean over the clients that reported, whatever their sizes."""
    before, after = after_a_round(fedavg, [name], reports=(1, 0, 1, 1))
    _, uploads = uploads_of(before)
    wanted = oracle(uploads[[0, 2, 3]])
    np.testing.assert_allclose(toy.flat(after.server), wanted, rtol=1e-5, atol=1e-6)


def test_krum_of_fewer_reports_than_it_chooses_is_their_mean():
    before, after = after_a_round(fedavg, ["krum:chosen=9"], reports=(1, 0, 1, 1))
    _, uploads = uploads_of(before)
    wanted = uploads[[0, 2, 3]].mean(0)
    np.testing.assert_allclose(toy.flat(after.server), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", channel.CHANNELS)
def test_a_method_that_sends_nothing_takes_any_channel(name):
    clients = after_a_round(local, [name])[1].clients
    if isinstance(clients, channel.ClientMemory):
        clients, _ = clients
    toy.assert_same(clients, without_channels(local).clients)


def test_channels_of_one_stage_act_in_the_order_given():
    """Noise of length 1e4 is clipped only where the clipping comes after it."""
    upload = {"w": jnp.zeros(3)}
    lengths = []
    for names in (["gaussian:std=1e4", "clip:norm=1.0"], ["clip", "gaussian:std=1e4"]):
        chain = channel.make([parse(name) for name in names])
        sent = sent_by(chain, upload, upload)
        lengths.append(float(jnp.linalg.norm(sent["w"])))
    assert lengths[0] == pytest.approx(1, rel=1e-5)
    assert lengths[1] > 100


def test_a_channel_keeps_its_state_in_the_run():
    """One that counts uploads, beside one that remembers nothing."""

    def receive(state, key, uploads, reports, cohort: Cohort):
        return uploads, state + cohort.mask.sum()

    counting = channel.clip(norm=1.0)()._replace(
        init=lambda start: jnp.float32(0), receive=receive
    )
    both = channel.chain([channel.clip(norm=9.0)(), counting])
    setting = engine.Setting(
        fedavg(TASK, LOCAL), LOCAL, selection.uniform(3, 4), channel=both
    )
    state = engine.init(setting, TASK, 4, jax.random.key(0))
    state, _ = engine.compile_rounds(setting, 5)(state, toy.quadratic_clients(), 4)
    assert state.channel == ((), 12)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["clip:norm=0"], "channel 'clip': norm is 0; expected a finite number > 0"),
        (["gaussian:std=-1.0"], "channel 'gaussian': std is -1.0; expected a finite"),
        (["cilp"], "unknown channel 'cilp'.*did you mean 'clip'"),
        (["clip:size=1"], "unknown parameter 'size'"),
        (["trimmed_mean:trim=0.5"], "expected 0 <= trim < 0.5"),
        (["krum:byzantine=-1"], "byzantine is -1; expected at least 0"),
        (["krum:chosen=0"], "chosen is 0; expected at least 1"),
    ],
)
def test_bad_channels_are_refused(names, expected):
    with pytest.raises(ValueError, match=expected):
        channel.make([parse(name) for name in names])
