"""Checkpoints restore bit for bit, and unusable ones are refused in one line."""

import itertools
import shutil
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import tiny
from pfljax.conformance.toy import assert_same
from pfljax.core.types import RunState
from pfljax.runs import checkpoint
from pfljax.runs.checkpoint import CheckpointError

# Of the reads of a damaged checkpoint, nothing may be left to complain later.
pytestmark = pytest.mark.filterwarnings("error")

CONFIG = "abc"
DEVICES = 4


def make_state(round_):
    """A state of 12 clients whose leaves differ in type."""
    values = np.random.default_rng(round_).normal(size=(12, 5))
    return RunState(
        key=jax.random.key(7),
        round=jnp.int32(round_),
        server={"w": jnp.asarray(values[0], jnp.bfloat16), "count": jnp.uint8(round_)},
        clients=({"v": jnp.asarray(values, jnp.float32)}, jnp.arange(12)),
        participations=jnp.arange(12),
        cohort=jnp.arange(3),
        selection=(),
        channel=(),
    )


def abstract():
    return jax.eval_shape(lambda: make_state(0))


def save(folder, *rounds, keep=2):
    with checkpoint.writer(folder, CONFIG, keep) as write:
        for round_ in rounds:
            write(round_, make_state(round_))


def restore(folder, said=None, expected=None, config=CONFIG):
    say = ([] if said is None else said).append
    saved = checkpoint.restore(folder, expected or abstract(), config, say)
    return saved and saved.state


def over_devices(state):
    """Shardings of a state whose clients lie on `DEVICES` devices."""
    mesh = Mesh(jax.devices()[:DEVICES], "clients")
    whole = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("clients"))
    shardings = jax.tree.map(lambda _: whole, state)
    return shardings._replace(clients=jax.tree.map(lambda _: split, state.clients))


def data_files(folder):
    """The files of a checkpoint that hold the state's arrays."""
    return [p for p in (folder / "state").rglob("*") if p.parent.name == "d"]


def test_round_trip_with_key_and_all_types(tmp_path):
    save(tmp_path, 3)
    said = []
    assert_same(restore(tmp_path, said), make_state(3))
    assert said == []


def test_restored_key_goes_on_as_the_saved_one(tmp_path):
    save(tmp_path, 3)
    drawn = jax.random.bits(restore(tmp_path).key)
    assert drawn == jax.random.bits(make_state(3).key)


def test_the_newest_are_kept(tmp_path):
    save(tmp_path, 1, 2, 3, 4, 5, keep=2)
    assert checkpoint.saved_rounds(tmp_path) == [4, 5]
    save(tmp_path, 6, keep=1)
    assert checkpoint.saved_rounds(tmp_path) == [6]
    assert_same(restore(tmp_path), make_state(6))


def test_a_machine_that_was_suspended_goes_on_saving(tmp_path, monkeypatch):
    """Whoever looks at the clock finds that two hours have passed."""
    clock = itertools.count(time.time(), 7200)
    with monkeypatch.context() as suspended:
        suspended.setattr(time, "time", lambda: next(clock))
        save(tmp_path, 1, 2)
        restored = restore(tmp_path)
    assert_same(restored, make_state(2))


def test_nothing_saved_is_none(tmp_path):
    assert restore(tmp_path) is None
    assert restore(tmp_path / "missing") is None


def test_the_state_may_be_donated_as_soon_as_save_returns(tmp_path):
    double = jax.jit(lambda s: s._replace(clients=s.server), donate_argnums=0)
    with checkpoint.writer(tmp_path, CONFIG) as write:
        state = make_state(1)
        write(1, state)
        double(state)
    assert_same(restore(tmp_path), make_state(1))


def test_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 3)
    save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"has format 3, but this pfljax reads "):
        restore(tmp_path)


def test_the_checkpoint_of_another_config_is_refused(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(CheckpointError, match="by a run with another config, model"):
        restore(tmp_path, config="def")


def flip(folder):
    """Flips bits in the middle of every data file, its length unchanged."""
    for path in data_files(folder):
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 8] = bytes(b ^ 0x55 for b in content[middle:][:8])
        path.write_bytes(content)


def truncate(folder):
    for path in data_files(folder):
        path.write_bytes(path.read_bytes()[:20])


def truncate_metadata(folder):
    for path in folder.rglob("_*METADATA"):
        path.write_bytes(path.read_bytes()[:20])


def truncate_shapes(folder):
    for path in (folder / "state" / "array_metadatas").iterdir():
        path.write_bytes(path.read_bytes()[:20])


def drop_metadata(folder):
    for path in folder.rglob("_*METADATA"):
        path.unlink()


def drop_state(folder):
    shutil.rmtree(folder / "state")


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGES = [
    *(flip, truncate_metadata, drop_metadata, empty),
    *(
        pytest.param(f, marks=pytest.mark.slow)
        for f in (truncate, truncate_shapes, drop_state)
    ),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_last_good_one_replaces_a_damaged_one(tmp_path, damage, caplog, capfd):
    save(tmp_path, 4, 6)
    damage(tmp_path / "6")
    said = []
    assert_same(restore(tmp_path, said), make_state(4))
    assert said[0] in [
        f"{tmp_path / '6'} is damaged ({reason})"
        for reason in ("its metadata are missing", "some of its files cannot be read")
    ]
    assert said[1:] == ["resuming from the checkpoint of round 4"]
    assert (caplog.text, *capfd.readouterr()) == ("", "", "")
    assert (tmp_path / "6.damaged").is_dir()
    save(tmp_path, 6)  # the damaged one is out of the way
    assert_same(restore(tmp_path), make_state(6))


def test_a_changed_byte_is_found_by_the_checksum(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_crc", lambda state: 1)
    save(tmp_path, 4)
    monkeypatch.undo()
    said = []
    with pytest.raises(CheckpointError):
        restore(tmp_path, said)
    assert "do not match their checksum" in said[0]


@pytest.mark.slow
def test_all_damaged_is_one_line(tmp_path):
    save(tmp_path, 4, 6)
    flip(tmp_path / "4")
    truncate(tmp_path / "6")
    with pytest.raises(CheckpointError, match=r"none .* can be read; start again") as e:
        restore(tmp_path)
    assert "\n" not in str(e.value)
    assert checkpoint.saved_rounds(tmp_path) == [4, 6]  # nothing is deleted


def test_a_half_written_one_is_ignored_and_cleaned_up(tmp_path):
    save(tmp_path, 4)
    half = tmp_path / "6.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "4", half)
    said = []
    assert_same(restore(tmp_path, said), make_state(4))
    assert said == []
    save(tmp_path, 5)
    assert not half.exists()


def test_another_model_or_store_is_refused(tmp_path):
    save(tmp_path, 4)
    expected = abstract()
    wider = jax.ShapeDtypeStruct((12, 6), jnp.float32)
    for clients in (({"v": wider}, expected.clients[1]), ()):
        other = expected._replace(clients=clients)
        with pytest.raises(CheckpointError, match="another config, model or store"):
            restore(tmp_path, expected=other)


def test_the_padding_of_the_clients_may_change(tmp_path):
    save(tmp_path, 4)
    state = make_state(4)
    for clients in (10, 12, 16):
        expected = jax.tree.map(
            lambda leaf, clients=clients: jax.ShapeDtypeStruct(
                (clients, *leaf.shape[1:]), leaf.dtype
            ),
            abstract().clients,
        )
        restored = restore(tmp_path, expected=abstract()._replace(clients=expected))
        least = min(clients, 12)
        for ours, theirs in zip(
            jax.tree.leaves(restored.clients),
            jax.tree.leaves(state.clients),
            strict=True,
        ):
            np.testing.assert_array_equal(ours[:least], theirs[:least])


@pytest.mark.slow
def test_restored_on_another_number_of_devices(tmp_path):
    """Saved on 1 device, restored and saved on 4 by another process, restored on 1."""
    save(tmp_path / "one", 3)
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        env=tiny.environment(tmp_path / "xla", JAX_NUM_CPU_DEVICES=str(DEVICES)),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    restored = restore(tmp_path / "four")
    assert_same(restored, make_state(5))
    assert {len(leaf.devices()) for leaf in jax.tree.leaves(restored)} == {1}


def _on_four_devices(folder):
    shardings = over_devices(abstract())
    expected = jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=where
        ),
        abstract(),
        shardings,
    )
    state = restore(folder / "one", expected=expected)
    assert_same(state, make_state(3))
    assert all(
        leaf.sharding.is_equivalent_to(where, leaf.ndim)
        for leaf, where in zip(
            jax.tree.leaves(state), jax.tree.leaves(shardings), strict=True
        )
    )
    assert len(state.clients[1].addressable_shards[0].data) == 12 // DEVICES
    with checkpoint.writer(folder / "four", CONFIG) as write:
        write(5, jax.device_put(make_state(5), shardings))


if __name__ == "__main__":
    from pathlib import Path

    _on_four_devices(Path(sys.argv[1]))
