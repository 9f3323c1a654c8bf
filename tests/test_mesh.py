"""Several devices: dealing, travelling states, and the same results as one device."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy
from pfljax import mesh
from tiny import environment


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """What tests/on_devices.py found, by method and number of devices."""
    file = tmp_path_factory.mktemp("devices") / "found.json"
    program = str(Path(__file__).with_name("on_devices.py"))
    env = environment(file.parent / "cache")
    subprocess.run([sys.executable, program, str(file)], env=env, check=True)
    return json.loads(file.read_text())


CASES = [
    ("fedavg", "4"),
    ("scaffold", "2"),
    ("ifca", "4"),
    ("superfed", "8"),
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
    if method in ("fedavg", "ifca", "by_size"):  # clients keep nothing
        assert set(count) == {"all-reduce"}
    else:
        assert set(count) == {"all-reduce", "all-to-all", "all-gather"}
    assert not played[method]["1"]["exchanges"]


@settings(deadline=None, max_examples=25)
@given(
    steps=st.lists(st.integers(0, 500), min_size=1, max_size=12),
    devices=st.integers(1, 5),
)
def test_every_client_is_dealt_once_and_loads_are_even(steps, devices):
    slots = np.asarray(mesh.deal(jnp.asarray(steps, jnp.int32), devices))
    places = slots.reshape(devices, -1)
    assert sorted(slots[slots < len(steps)]) == list(range(len(steps)))
    assert len(slots) - len(steps) == (slots == len(steps)).sum()
    work = np.append(np.asarray(steps), 0)[places].sum(1)
    room = places.shape[1]
    if room == len(steps):  # Graham's bound for the largest first
        ideal = max(max(steps), sum(steps) / devices)
        assert work.max() <= 4 / 3 * ideal + devices + len(steps)


def test_dealing_gives_the_largest_client_a_device_of_its_own():
    slots = mesh.deal(jnp.asarray([10, 500, 20, 30, 40], jnp.int32), 2).reshape(2, -1)
    assert slots.tolist() == [[1, 5, 5, 5, 5], [4, 3, 2, 0, 5]]


def test_rows_are_padded_to_equal_blocks_and_back():
    grid = mesh.make(1)
    assert mesh.padded(7, None) == 7
    assert mesh.padded(7, grid) == 7
    stacked = jnp.arange(6.0).reshape(3, 2)
    toy.assert_same(mesh.pad(grid, stacked, 5)[:3], stacked)
    doubled = mesh.over_rows(grid, lambda same, x: same * x, 2.0, stacked, 3)
    toy.assert_same(doubled, 2 * stacked)


def test_more_devices_than_there_are():
    with pytest.raises(ValueError, match="choose 1 <= devices <= "):
        mesh.make(1000)
