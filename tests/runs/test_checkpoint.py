"""What is saved comes back bit for bit, and what cannot be used is told in one line."""

import gc
import json
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import v1 as ocp

import tiny
from pfljax.conformance.toy import assert_same
from pfljax.core.types import RunState
from pfljax.runs import checkpoint, checkpoint_meta, checksum
from pfljax.runs.checkpoint import CheckpointError

# TensorStore complains of reads that a damaged file left open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)

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


def test_too_new_a_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_meta, "FORMAT", 4)
    save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"has format 4, .* upgrade pfljax$"):
        restore(tmp_path)


def test_the_checkpoint_of_another_config_is_refused(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"another config; use its own folder$"):
        restore(tmp_path, config="def")
    assert_same(restore(tmp_path, config=None), make_state(1))


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


def drop_metadata(folder):
    for path in folder.rglob("_*METADATA"):
        path.unlink()


def drop_state(folder):
    shutil.rmtree(folder / "state")


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def rename_config(folder):
    """One letter of the config's digest: another run's, it seems."""
    metadata = folder / "_CHECKPOINT_METADATA"
    text = metadata.read_text()
    assert text.count(CONFIG) == 1
    metadata.write_text(text.replace(CONFIG, "abd"))


def drop_custom_metadata(folder):
    metadata = folder / "_CHECKPOINT_METADATA"
    content = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(content | {"custom_metadata": {}}))


def of_another_round(folder):
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / "4", folder)


DAMAGES = [flip, truncate, drop_metadata, drop_state, empty]
DAMAGES += [rename_config, drop_custom_metadata, of_another_round]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_last_good_one_replaces_a_damaged_one(tmp_path, damage, capfd):
    save(tmp_path, 4, 6)
    damage(tmp_path / "6")
    said = []
    assert_same(restore(tmp_path, said), make_state(4))
    assert said[0].startswith("the checkpoint of round 6 is damaged: ")
    assert said[1:] == [
        "taking the last good checkpoint, round 4",
        f"the damaged one of round 6 is kept as {tmp_path / '6.damaged'}",
    ]
    assert all("\n" not in line for line in said)
    gc.collect()
    assert capfd.readouterr().err == ""
    save(tmp_path, 6)  # the damaged one is out of the way
    assert_same(restore(tmp_path), make_state(6))


def test_a_damaged_one_stays_readable_beside_the_others(tmp_path):
    save(tmp_path, 4, 6)
    for number in ("", "1"):
        shutil.copytree(tmp_path / "4", tmp_path / "aside")
        drop_metadata(tmp_path / "6")
        restore(tmp_path)
        assert (tmp_path / f"6.damaged{number}" / "state").is_dir()
        (tmp_path / "aside").rename(tmp_path / "6")
    restore(tmp_path, [])
    assert checkpoint.saved_rounds(tmp_path) == [4]


@pytest.mark.parametrize("text", ["3", "[]", "", "{"])
def test_an_older_one_that_cannot_be_listed_is_put_aside(tmp_path, text):
    save(tmp_path, 4, 6)
    (tmp_path / "4" / "_CHECKPOINT_METADATA").write_text(text)
    said = []
    assert_same(restore(tmp_path, said), make_state(6))
    aside = tmp_path / "4.damaged"
    assert said == [f"the damaged one of round 4 is kept as {aside}"]
    save(tmp_path, 8)
    assert checkpoint.saved_rounds(tmp_path) == [6, 8]


@pytest.mark.parametrize("text", [None, "3", ""])
def test_the_newest_that_cannot_be_listed_is_damaged(tmp_path, text):
    save(tmp_path, 4, 6)
    metadata = tmp_path / "6" / "_CHECKPOINT_METADATA"
    metadata.unlink() if text is None else metadata.write_text(text)
    said = []
    assert_same(restore(tmp_path, said), make_state(4))
    assert "the checkpoint of round 6 is damaged: its _CHECKPOINT_METADATA" in said[0]
    assert checkpoint.saved_rounds(tmp_path) == [4]


def test_a_pipe_deep_in_a_checkpoint_is_refused(tmp_path):
    save(tmp_path, 4)
    metadata = tmp_path / "4" / "_CHECKPOINT_METADATA"
    metadata.unlink()
    os.mkfifo(metadata)
    with pytest.raises(CheckpointError, match="_CHECKPOINT_METADATA is a pipe"):
        restore(tmp_path)


def test_a_checkpoint_of_an_older_version_is_refused(tmp_path, monkeypatch):
    to_json = checkpoint_meta.to_json
    monkeypatch.setattr(
        checkpoint_meta, "to_json", lambda meta: to_json(meta) | {"format": 1}
    )
    save(tmp_path, 1)
    with pytest.raises(CheckpointError, match="is of an older pfljax; finish the run"):
        restore(tmp_path)


def test_one_of_format_2_is_read(tmp_path, monkeypatch):
    """It had as a part of its own what it says of itself."""
    save(tmp_path / "now", 4)
    meta = checkpoint.read_meta(tmp_path / "now", 4)
    monkeypatch.setattr(checkpoint_meta, "FORMAT", 2)
    parts = {"state": make_state(4), "meta": checkpoint_meta.to_json(meta)}
    ocp.save_checkpointables(str(tmp_path / "then" / "4"), parts)
    monkeypatch.undo()
    assert_same(restore(tmp_path / "then"), make_state(4))
    with pytest.raises(CheckpointError, match="another config; use its own folder"):
        restore(tmp_path / "then", config="def")


def make_file(path):
    path.write_text("")


def make_loop(path):
    path.symlink_to(path)


def make_link(path):
    path.symlink_to(path.parent / "4")


@pytest.mark.parametrize("make", [make_file, make_loop, make_link, os.mkfifo])
def test_what_is_no_checkpoint_is_refused(tmp_path, make):
    save(tmp_path, 4)
    make(tmp_path / "7")
    with pytest.raises(CheckpointError, match=r"7 is a .*; remove it"):
        restore(tmp_path)


@pytest.mark.parametrize("name", ["²", "٣", "007", "1.5", "-3", "notes"])
def test_other_names_are_no_checkpoints(tmp_path, name):
    save(tmp_path, 4)
    (tmp_path / name).mkdir()
    assert checkpoint.saved_rounds(tmp_path) == [4]
    assert_same(restore(tmp_path), make_state(4))
    save(tmp_path, 5)


def test_a_changed_byte_is_found_by_the_checksum(tmp_path, monkeypatch):
    monkeypatch.setattr(checksum, "crc", lambda state: 1)
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


@pytest.mark.parametrize(
    "error",
    [MemoryError(), PermissionError("no"), ValueError("PERMISSION_DENIED: a file")],
)
def test_what_the_machine_refuses_is_no_damage(tmp_path, monkeypatch, error):
    save(tmp_path, 4, 6)

    def refuse(*args):
        raise error

    monkeypatch.setattr(checkpoint, "_load", refuse)
    said = []
    with pytest.raises(
        CheckpointError, match=r"cannot be read now .* nothing was changed"
    ):
        restore(tmp_path, said)
    assert said == []
    assert checkpoint.saved_rounds(tmp_path) == [4, 6]


@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
def test_the_checkpoint_of_another_kind_of_key_is_refused(tmp_path, kind):
    save(tmp_path, 4)
    jax.config.update("jax_default_prng_impl", kind)
    said = []
    try:
        with pytest.raises(
            CheckpointError,
            match=f"/4 was saved with JAX_DEFAULT_PRNG_IMPL=threefry2x32, .* {kind}; ",
        ):
            restore(tmp_path, said)
        save(tmp_path / "ours", 4)
        assert_same(restore(tmp_path / "ours"), make_state(4))
    finally:
        jax.config.update("jax_default_prng_impl", "threefry2x32")
    assert said == []
    assert_same(restore(tmp_path), make_state(4))


def test_a_half_written_one_is_ignored_and_cleaned_up(tmp_path):
    save(tmp_path, 4)
    half = tmp_path / "6.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "4", half)
    said = []
    assert_same(restore(tmp_path, said), make_state(4))
    assert said == []
    save(tmp_path, 5)
    assert not half.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float16),
        lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0] + 1, 5), leaf.dtype),
    ],
)
def test_other_types_and_shapes_are_refused(tmp_path, change):
    save(tmp_path, 4)
    expected = abstract()
    clients = ({"v": change(expected.clients[0]["v"])}, expected.clients[1])
    with pytest.raises(CheckpointError, match="none of the checkpoints"):
        restore(tmp_path, expected=expected._replace(clients=clients))


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
