"""Widths: from the table, by a probe, within memory; a resumed run keeps its own."""

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
from tiny import TINY

DIGITS = TINY.replace(algorithm="fedavg", devices=1)


def made(width):
    federation, _ = build_federation(DIGITS)
    return simulation.simulation(DIGITS.replace(width=width), federation)


def test_widths_are_halved_down_to_one():
    assert executor.halves(10) == [10, 5, 3, 2, 1]
    assert executor.halves(1) == [1]


def test_the_widest_that_fits_is_taken():
    federation, _ = build_federation(DIGITS)
    wide = executor.bytes_needed(made(3), federation)
    narrow = executor.bytes_needed(made(1), federation)
    assert narrow < wide
    for limit, width in ((wide, 3), (wide - 1, 1), (narrow, 1)):
        sim = executor.choose_fitting([3, 1], made, federation, limit)
        assert sim.setting.width == width


def test_data_and_states_count():
    federation, _ = build_federation(DIGITS)
    sim = made(1)
    held = (federation.train, sim.shapes)
    nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(held[0]))
    assert executor.bytes_needed(sim, federation) > nbytes + tree.nbytes(held[1].server)


def test_what_does_not_fit_is_one_line():
    federation, _ = build_federation(DIGITS)
    with pytest.raises(
        ValueError, match=r"width 1 needs .* GB with data .* --state-storage disk"
    ):
        executor.choose_fitting([1], made, federation, limit=1000)


def test_the_program_that_is_measured_trains():
    """On one device, too: compiling is most of what a short run takes."""
    federation, _ = build_federation(DIGITS)
    sim = made(3)
    executor.bytes_needed(sim, federation)
    train = simulation.place(sim, federation).train
    state = sim.init(jax.random.key(0))
    state = jax.device_put(state, mesh.shardings(sim.setting.mesh, state))
    with compiling.watch() as works:
        sim.rounds(state, train, 1, public=None)
    assert compiling.programs(works) == 0


def test_more_memory_is_free_than_a_megabyte():
    assert size.free(made(1)) > 1e6


@pytest.mark.slow
def test_a_probe_is_remembered(tmp_path, monkeypatch):
    experiment = DIGITS.replace(width="auto", out=str(tmp_path / "auto"))
    seconds = {1: 3.0, 2: 1.0, 3: 2.0}
    monkeypatch.setattr(
        executor, "_one_round", lambda sim, data: seconds[sim.setting.width]
    )
    run(experiment, quiet=True, report=False)
    path = tmp_path / "auto"
    assert read_json(path / "environment.json")["width"] == 2
    monkeypatch.delattr(executor, "_one_round")
    federation, _ = build_federation(experiment)
    assert executor.choose(experiment, federation, None, path).setting.width == 2


def test_a_probe_times_a_round_and_leaves_no_trace():
    federation, _ = build_federation(DIGITS)
    sim = made(1)
    assert 0 < executor._one_round(sim, federation) < 60
    state = sim.init(jax.random.key(0))
    assert int(state.round) == 0


@pytest.mark.parametrize("width", ["fast", 0, -1])
def test_an_unknown_width(width, tmp_path):
    with pytest.raises(ValueError, match="width is"):
        run(DIGITS.replace(width=width, out=str(tmp_path)))


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
