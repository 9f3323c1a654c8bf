"""Several devices: who trains where, and the same results as one device."""

import json
import subprocess
import sys
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import on_devices
from checkout import TESTS
from pfljax import algorithms, engine, selection
from pfljax.conformance import toy
from pfljax.core.types import ClientData, Examples
from pfljax.engine import assignment, mesh, placement
from pfljax.engine.setting import exchanges
from tiny import environment


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The output of tests/on_devices.py, by method and number of devices."""
    file = tmp_path_factory.mktemp("devices") / "found.json"
    program = str(TESTS / "on_devices.py")
    env = environment(file.parent / "cache")
    subprocess.run([sys.executable, program, str(file)], env=env, check=True)
    return json.loads(file.read_text())


CASES = [
    ("fedavg", "4"),
    ("scaffold", "2"),
    ("scaffold", "4 pinned"),
    ("ifca", "4"),
    ("ifca", "2 pinned"),
    ("superfed", "8"),
    ("superfed", "8 pinned"),
    ("by_size", "2"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "devices"), CASES)
def test_several_devices_do_as_one(played, method, devices):
    one, several = played[method]["1"], played[method][devices]
    assert several["clients 1"] == one["clients 1"]  # bit for bit
    for key in ("server 1", "server 3", "clients 3"):
        for a, b in zip(one[key], several[key], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert one["server 3"] != one["server 1"]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "devices"), CASES)
def test_a_round_has_one_all_reduce(played, method, devices):
    count = Counter(played[method][devices]["exchanges"])
    assert count["all-reduce"] == 1
    if "pinned" in devices or method in ("fedavg", "ifca", "by_size"):  # keep nothing
        assert set(count) == {"all-reduce"}
    else:
        assert set(count) == {"all-reduce", "all-to-all", "all-gather"}
    assert not played[method]["1"]["exchanges"]


@pytest.mark.slow
@pytest.mark.parametrize("name", algorithms.methods())
def test_every_method_has_one_all_reduce_a_round(played, name):
    """Law 11, of several devices: one for each exchange of a round."""
    method = algorithms.method(name)(toy.classifier(), toy.full_batch())
    count = Counter(played["every"][name])
    setting = engine.Setting(method, toy.full_batch(), selection.uniform(1, 1))
    assert count["all-reduce"] == len(exchanges(setting))


@pytest.mark.slow
def test_uploads_that_are_summed_are_the_mean_of_the_stacked(played):
    """And the sums of the devices meet in one all-reduce."""
    assert {"fedavg", "superfed", "of two lanes", "pinned"} <= set(played["means"])
    for ways in played["means"].values():
        for key in ("server 2", "clients 2"):
            for a, b in zip(ways["stacked"][key], ways["summed"][key], strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
        assert Counter(ways["summed"]["exchanges"])["all-reduce"] == 1


@pytest.mark.slow
def test_a_device_holds_the_pinned_clients_alone(played):
    train, test = on_devices.clients()
    sizes = np.asarray(train.size) + np.asarray(test.size)
    for method, ways in on_devices.PLAYED.items():
        for way in ways:
            devices, found = int(way.split()[0]), played[method.__name__][way]
            held = [len(train.examples.y)] * devices
            if "pinned" in way:
                own = np.array_split(np.arange(8), devices)  # 7 clients, and nobody
                most = max(sizes[ids[ids < 7]].sum() for ids in own)
                held = [most] * devices
            assert found["held"] == held


@settings(deadline=None, max_examples=25)
@given(
    spans=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 9)), min_size=2, max_size=9
    ),
    devices=st.integers(1, 4),
    stacks=st.integers(1, 3),
)
def test_examples_on_the_owner_are_those_of_the_pool(spans, devices, stacks):
    """Spans may overlap, as test examples shared by clients do, or be empty."""
    offset, size = np.asarray(spans).T
    rng = np.random.default_rng(len(spans))
    pool = Examples(rng.normal(size=(29, 2)), np.arange(29))
    parts = {"train": ClientData(pool, offset, size)}
    stack = np.arange(len(spans)) % stacks
    home = placement.owners(devices, stack)
    found = placement.layout(devices, parts, home)
    at = found.offset["train"]
    for client, (first, count) in enumerate(spans):
        block = -(-(stack == client % stacks).sum() // devices)
        assert home[client] == client // stacks // block
        own = found.rows[home[client]]
        start = at[client] - home[client] * found.length
        assert own[start : start + count].tolist() == list(range(first, first + count))
    for own in found.rows:
        assert len(own) == len(set(own.tolist())) <= found.length


@settings(deadline=None, max_examples=25)
@given(count=st.integers(1, 20), size=st.integers(1, 9), devices=st.integers(1, 4))
def test_blocks_hold_everybody_and_as_many_of_each_device(count, size, devices):
    found = list(mesh.blocks(devices, count, size))
    assert set(np.concatenate(found).tolist()) >= set(range(count))
    each = -(-count // devices)
    for block in found:
        own = block.reshape(devices, -1) // each
        assert (own == np.arange(devices)[:, None]).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    ids=st.lists(st.integers(0, 12), min_size=1, max_size=9, unique=True),
    again=st.lists(st.integers(0, 13), max_size=5),
    devices=st.integers(1, 5),
)
def test_each_pinned_slot_is_on_its_clients_device(ids, again, devices):
    block = -(-13 // devices)
    # 13 is nobody; who stands in two places counts in the first.
    clients = jnp.asarray(ids + [row for row in again if row in (*ids, 13)])
    counts = jnp.arange(len(clients)) < len(ids)
    slots = np.asarray(assignment.assign_to_owners(clients, counts, devices, block))
    assert sorted(slots[slots < len(clients)]) == list(range(len(ids)))
    assert len(slots) == devices * min(len(clients), block)
    for device, own in enumerate(slots.reshape(devices, -1)):
        real = own[own < len(ids)]
        assert all(ids[place] // block == device for place in real)
        assert (own[: len(real)] == real).all()  # empty ones come behind


@settings(deadline=None, max_examples=8)
@given(
    steps=st.lists(st.integers(0, 500), min_size=1, max_size=12),
    devices=st.integers(1, 5),
)
def test_every_client_is_dealt_once_and_loads_are_even(steps, devices):
    slots = np.asarray(assignment.balance(jnp.asarray(steps, jnp.int32), devices))
    places = slots.reshape(devices, -1)
    assert sorted(slots[slots < len(steps)]) == list(range(len(steps)))
    assert len(slots) - len(steps) == (slots == len(steps)).sum()
    work = np.append(np.asarray(steps), 0)[places].sum(1)
    room = places.shape[1]
    if room == len(steps):  # Graham's bound for the largest first
        ideal = max(max(steps), sum(steps) / devices)
        assert work.max() <= 4 / 3 * ideal + devices + len(steps)


def test_dealing_gives_the_largest_client_a_device_of_its_own():
    slots = assignment.balance(
        jnp.asarray([10, 500, 20, 30, 40], jnp.int32), 2
    ).reshape(2, -1)
    assert slots.tolist() == [[1, 5, 5, 5, 5], [4, 3, 2, 0, 5]]


def test_rows_are_padded_to_equal_blocks_and_back():
    grid = mesh.make(1)
    assert mesh.round_up(7, None) == 7
    assert mesh.round_up(7, grid) == 7
    stacked = jnp.arange(6.0).reshape(3, 2)
    toy.assert_same(mesh.pad(grid, stacked, 5)[:3], stacked)
    add = lambda same, pool, x: same * x + pool.sum()  # noqa: E731
    doubled = mesh.over_rows(grid, add, 2.0, jnp.ones(2), stacked, 3)
    toy.assert_same(doubled, 2 * stacked + 2)


def test_more_devices_than_there_are():
    with pytest.raises(ValueError, match="choose 1 <= devices <= "):
        mesh.make(1000)
