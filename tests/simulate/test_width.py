"""Widths: from the table, within memory; a resumed run keeps its own."""

import jax
import pytest

import compiling
from pfljax import run
from pfljax.core import tree
from pfljax.engine import mesh
from pfljax.runs.folder import read_json, write_json
from pfljax.simulate import simulation, size
from pfljax.simulate import width as executor
from pfljax.simulate.federation import build_federation
from pfljax.simulate.place import place
from tiny import TINY

DIGITS = TINY.replace(algorithm="fedavg", devices=1)


def made(width):
    federation, _ = build_federation(DIGITS)
    return simulation.simulation(DIGITS.replace(width=width), federation)


def test_widths_are_halved_down_to_one():
    assert executor.halves(10) == [10, 5, 3, 2, 1]
    assert executor.halves(1) == [1]


def test_the_widest_that_fits_is_taken(monkeypatch):
    federation, _ = build_federation(DIGITS)
    wide = executor.bytes_needed(made(3), federation)
    narrow = executor.bytes_needed(made(1), federation)
    assert narrow < wide
    for limit, width in ((wide, 3), (wide - 1, 1), (narrow, 1)):
        monkeypatch.setattr(size, "free", lambda sim, limit=limit: limit)
        sim = executor.choose_fitting([3, 1], made, federation)
        assert sim.setting.width == width


def test_data_and_states_count():
    federation, _ = build_federation(DIGITS)
    sim = made(1)
    held = (federation.train, sim.shapes)
    nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(held[0]))
    assert executor.bytes_needed(sim, federation) > nbytes + tree.nbytes(held[1].server)


def test_what_does_not_fit_is_one_line(monkeypatch):
    federation, _ = build_federation(DIGITS)
    monkeypatch.setattr(size, "free", lambda sim: 1000)
    with pytest.raises(
        ValueError, match=r"width 1 needs .* GB with data .* --state-storage disk"
    ):
        executor.choose_fitting([1], made, federation)


def test_the_program_that_is_measured_trains():
    """On one device, too: compiling is most of what a short run takes."""
    federation, _ = build_federation(DIGITS)
    sim = made(3)
    executor.bytes_needed(sim, federation)
    train = place(sim, federation).train
    state = sim.init(jax.random.key(0))
    state = jax.device_put(state, mesh.shardings(sim.setting.mesh, state))
    with compiling.watch() as works:
        sim.rounds(state, train, 1, public=None)
    assert compiling.programs(works) == 0


def test_more_memory_is_free_than_a_megabyte():
    assert size.free(made(1)) > 1e6


@pytest.mark.parametrize("width", ["auto", 0, -1])
def test_an_unknown_width(width, tmp_path):
    with pytest.raises(ValueError, match="width is"):
        run(DIGITS.replace(width=width, out=str(tmp_path)))


@pytest.mark.slow
def test_what_was_free_once_is_kept_by_a_resumed_run(tmp_path):
    experiment = DIGITS.replace(out=str(tmp_path / "run"))
    run(experiment, quiet=True, report=False)
    file = tmp_path / "run" / "environment.json"
    environment = read_json(file)
    assert environment["width"] == 1
    write_json(file, environment | {"width": 2})
    federation, _ = build_federation(experiment)
    sim = executor.choose(experiment, federation, None, tmp_path / "run")
    assert sim.setting.width == 2
