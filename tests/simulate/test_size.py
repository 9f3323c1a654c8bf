"""Runs that need far too much memory are refused before they are compiled."""

import pytest

import tiny
from pfljax.core import tree
from pfljax.runtime import memory
from pfljax.simulate import simulation, size, width
from pfljax.simulate.federation import build_federation

DITTO = tiny.TINY.replace(algorithm="ditto", devices=1)


@pytest.fixture(scope="module")
def federation():
    return build_federation(DITTO)[0]


def made(federation, **changes):
    return simulation.simulation(DITTO.replace(**changes), federation)


def refuse_to_compile(*_):
    raise AssertionError("it was compiled")


@pytest.mark.parametrize("store", ["device", "disk"])
@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        (10**7, "100000760000010 parameters, 400003.04 GB, and 8.00 GB are free on a "),
        (60000, "3604560010 parameters, 14.42 GB, and 8.00 GB are free on a device; c"),
    ],
)
def test_a_large_model_is_refused(
    federation, monkeypatch, tmp_path, store, hidden, expected
):
    monkeypatch.setattr(memory, "free_bytes", lambda devices: 8e9)
    monkeypatch.setattr(width, "bytes_needed", refuse_to_compile)
    large = DITTO.replace(model=f"mlp:hidden=({hidden},{hidden})", state_storage=store)
    with pytest.raises(ValueError, match="choose a smaller one") as raised:
        width.choose(large, federation, None, tmp_path)
    assert expected in str(raised.value)


def test_an_array_that_xla_cannot_count_is_refused(federation):
    task = made(federation, model="mlp:hidden=(60000,60000)").task
    with pytest.raises(ValueError, match="one array has 3600000000; choose a smaller"):
        size.check_model(task, 1e12)


def test_states_of_clients_count(federation, monkeypatch):
    sim = made(federation, width=1)
    state = sim.shapes
    least = tree.nbytes((state.server, state.clients))
    # Never more than what its compiled program needs: that is asked afterwards.
    most = width.bytes_needed(sim, federation)
    monkeypatch.setattr(memory, "free_bytes", lambda devices: least)
    with pytest.raises(ValueError, match="states of server and clients take "):
        size.check(sim)
    monkeypatch.setattr(memory, "free_bytes", lambda devices: most)
    size.check(sim)


def test_a_store_holds_fewer_clients(federation, monkeypatch):
    stored = made(federation, state_storage="disk", width=1)
    (stack,) = stored.paging.stacks
    held = stack.resident * tree.nbytes(made(federation).shapes.clients)
    monkeypatch.setattr(memory, "free_bytes", lambda devices: held // 6)
    with pytest.raises(ValueError, match="states of server and clients"):
        size.check(stored)
