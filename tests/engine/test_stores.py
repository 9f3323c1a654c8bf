"""Client states in host memory or on disk: the bits of a run on the devices alone."""

import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from small_stores import BYTES, LAYOUT, disk, held, host, stored_records

import stored
from checkout import TESTS
from pfljax import Experiment, run
from pfljax.conformance.toy import assert_close, assert_same
from pfljax.engine import host_store, offload_programs, records
from pfljax.engine.disk_store import DiskStore
from pfljax.engine.population import DevicePopulation
from pfljax.engine.records import Owner
from pfljax.runs import checkpoint, checks
from pfljax.runs.checkpoint import CheckpointError
from pfljax.runs.folder import FolderError, read_json, write_json
from pfljax.runtime.files import StoreError
from pfljax.simulate import export, simulation
from tiny import SEEN, environment, last_state, main, options

JOB = SEEN.replace(algorithm="fedper")


@pytest.mark.parametrize(
    "method", [stored.scaffold, pytest.param(stored.superfed, marks=pytest.mark.slow)]
)
def test_every_store_and_every_cut_gives_the_same_bits(method, tmp_path):
    run, programs = stored.check(method, tmp_path)
    assert run._cache_size() == 2  # with all clients, and with those of a call
    (stack,) = programs.stacks
    sizes = [f._cache_size() for f in (programs.cohorts, stack.carry)]
    assert sizes == [1, 1]
    assert stack.fill._cache_size() <= 2  # of a call, and of an evaluation


@pytest.mark.slow
def test_every_architecture_has_a_store(tmp_path):
    """Of the third, whose body is empty, records are of no bytes."""
    run, programs = stored.check(stored.lg_fedavg, tmp_path, pattern=stored.PATTERN)
    assert [len(stack.members) for stack in programs.stacks] == [3, 4, 1]
    assert programs.stacks[2].layout.nbytes == 0
    assert run._cache_size() == 2


@pytest.mark.slow
def test_a_selection_that_learns_is_read_round_by_round(tmp_path):
    """A round's clients follow from the losses of the round before."""
    setting, run, programs, first = stored.game(stored.ditto, select=stored.worst)
    assert programs.stacks[0].resident == stored.COHORT
    wanted = stored.play(setting, first, stored.CUTS[0], DevicePopulation(run))
    population = stored.paged("host", tmp_path / "host", run, programs)
    assert_same(stored.play(setting, first, (1,) * 9, population), wanted)


@pytest.mark.slow
def test_every_store_gives_the_same_bits_on_two_devices(tmp_path):
    program = str(TESTS / "stored.py")
    env = environment(tmp_path / "cache")
    played = subprocess.run([sys.executable, program, str(tmp_path)], env=env)
    assert played.returncode == 0


@pytest.mark.slow
def test_a_run_ends_as_on_the_devices(tmp_path, monkeypatch):
    """Evaluated in blocks of 2; the last bits are XLA's, for programs differ."""
    monkeypatch.setattr(offload_programs, "BLOCK", 2)
    for kind in ("device", "disk"):
        simulation._simulation.cache_clear()
        job = JOB.replace(state_storage=kind, out=str(tmp_path / kind))
        run(job, quiet=True, report=False)
    simulation._simulation.cache_clear()
    device, disk = tmp_path / "device", tmp_path / "disk"
    for name in ("personal/test/loss", "unseen:personal/test/loss", "participations"):
        arrays = [np.load(f / "clients.npz")[name] for f in (device, disk)]
        np.testing.assert_allclose(*arrays, rtol=1e-5)
    models = [export.personal_model(f, 4) for f in (device, disk)]
    assert_close(*models)


@pytest.mark.parametrize("keep", [1, 2, 3])
@pytest.mark.parametrize("kind", ["host", "disk"])
def test_every_kept_checkpoint_can_be_gone_back_to(kind, keep, tmp_path):
    """At any moment, as after a kill: in calls, before and after a checkpoint."""
    rng, now, past = np.random.default_rng(keep), {}, {0: {}}
    sums = {0: None}

    def open_in(folder, writable=True):
        return host(folder) if kind == "host" else disk(folder, keep, 6, writable)

    def check(moment):
        copy = tmp_path / f"copy{moment}"
        shutil.copytree(tmp_path / "run", copy)
        for round_, wanted in past.items():
            for writable in (False, True) if round_ == max(past) else (False,):
                place = open_in(copy, writable)
                place.restore(round_, sums[round_])
                assert held(place) == wanted
        place = open_in(copy, False)  # the writer has forgotten what was later
        place.restore(max(past), sums[max(past)])
        assert held(place) == past[max(past)]

    (tmp_path / "run").mkdir()
    place = open_in(tmp_path / "run")
    place.restore(0)
    for round_ in range(1, 40):
        ids = np.sort(rng.choice(6, rng.integers(1, 5), replace=False))
        new = stored_records(rng, len(ids))
        place.write(round_, ids, new)
        now |= {int(k): row.tobytes() for k, row in zip(ids, new, strict=True)}
        assert held(place) == now
        if rng.random() < 0.4:
            check(f"{round_}a")
            sums[round_] = place.save(round_)
            check(f"{round_}b")
            past[round_] = dict(now)
            past = {r: past[r] for r in sorted(past)[-keep:]}
            place.keep([r for r in past if r])
            check(f"{round_}c")


def test_a_round_that_is_no_longer_kept_is_refused(tmp_path):
    place = disk(tmp_path, keep=1)
    for round_ in (1, 2):
        place.write(round_, np.arange(2), np.ones((2, BYTES), np.uint8))
        place.save(round_)
        place.keep([round_])
    with pytest.raises(StoreError, match="goes back to round 2 and no further"):
        disk(tmp_path, keep=1).restore(1)
    with pytest.raises(StoreError, match=r"keep is 2, .* choose keep <= 1"):
        disk(tmp_path, keep=2)


def test_only_clients_that_took_part_take_space(tmp_path):
    layout = records.make_layout(jax.ShapeDtypeStruct((10_000,), np.float32))
    owner = Owner("disk", "abc", 100_000, layout)
    place = DiskStore(tmp_path / "clients", owner, 2, True)
    ids = np.arange(5) * 20_000
    place.write(1, ids, np.ones((5, 40_000), np.uint8))
    place.save(1)
    file = (tmp_path / "clients" / "records.bin").stat()
    assert file.st_size == 100_000 * 3 * 40_000  # 12 GB of holes
    assert file.st_blocks * 512 < 250_000


def test_the_file_of_the_host_store_has_the_written_records_only(tmp_path):
    place = host(tmp_path, clients=1000)
    place.write(3, np.asarray([4, 900]), np.ones((2, BYTES), np.uint8))
    place.save(3)
    content = (tmp_path / "clients" / "round-3.bin").read_bytes()
    assert content == np.asarray([4, 900]).tobytes() + bytes([1]) * 2 * BYTES


def test_the_host_store_saves_block_by_block(tmp_path, monkeypatch):
    monkeypatch.setattr(host_store, "BLOCK_BYTES", 2 * BYTES)
    place = host(tmp_path)
    place.write(1, np.arange(5), stored_records(np.random.default_rng(0), 5))
    checksum = place.save(1)
    again = host(tmp_path)
    again.restore(1, checksum)
    assert held(again) == held(place)


def test_records_are_the_bytes_of_all_leaves():
    tree = {"a": np.arange(18, dtype=np.float32).reshape(2, 9), "b": np.int32([7, -1])}
    packed = records.pack(LAYOUT, tree, 2)
    assert packed.shape == (2, BYTES)
    assert_same(records.unpack(LAYOUT, packed), tree)
    with pytest.raises(ValueError, match="keeps random keys"):
        records.make_layout(jax.eval_shape(jax.random.key, 0))


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    """The folder of a finished run with its clients on disk."""
    folder = tmp_path_factory.mktemp("disk") / "run"
    run(JOB.replace(state_storage="disk", out=str(folder)), quiet=True, report=False)
    return folder


def reopened(folder, place):
    """A copy of a finished run without its summary."""
    shutil.copytree(folder, place)
    (place / "summary.json").unlink()
    return place


@pytest.mark.slow
def test_a_run_goes_on_with_its_own_store_only(on_disk, tmp_path):
    folder = reopened(on_disk, tmp_path / "run")
    job = JOB.replace(out=str(folder))
    for kind in ("device", "host"):
        with pytest.raises(FolderError, match=f"state_storage: disk -> {kind}"):
            run(job.replace(state_storage=kind), quiet=True, report=False)
    fields = read_json(folder / "config.json")
    fields["state_storage"] = "device"
    write_json(folder / "config.json", fields)
    with pytest.raises(CheckpointError, match="another config, model or store"):
        run(job, quiet=True, report=False)


@pytest.mark.slow
def test_a_run_with_its_clients_on_disk_goes_on_for_more_rounds(on_disk, tmp_path):
    folder = shutil.copytree(on_disk, tmp_path / "run")
    longer = JOB.replace(rounds=JOB.rounds + 2, state_storage="disk")
    for place in (folder, tmp_path / "whole"):
        run(longer.replace(out=str(place)), quiet=True, report=False)
    assert_same(*(last_state(place) for place in (folder, tmp_path / "whole")))


def test_a_lost_store_is_one_line(on_disk, tmp_path):
    folder = reopened(on_disk, tmp_path / "run")
    shutil.rmtree(folder / "clients")
    job = JOB.replace(out=str(folder), state_storage="disk")
    code, _, errors = main("run", *options(job))
    assert code == 2
    assert errors.splitlines()[-1].startswith(f"pfljax: {folder}/clients has no store")


def test_an_unknown_store_is_refused():
    with pytest.raises(ValueError, match="state_storage is 'tape'; expected 'device'"):
        checks.check(Experiment(state_storage="tape"))


def test_a_resume_reads_once_what_its_checkpoint_says(on_disk, tmp_path, monkeypatch):
    folder = reopened(on_disk, tmp_path / "run")
    rounds = []
    read = checkpoint.read_meta

    def counted(checkpoints, round_):
        rounds.append(round_)
        return read(checkpoints, round_)

    monkeypatch.setattr(checkpoint, "read_meta", counted)
    run(JOB.replace(state_storage="disk", out=str(folder)), quiet=True, report=False)
    assert len(rounds) == 1
