"""A store that is not what was saved is refused; no state is made anew in silence."""

import json
import shutil

import numpy as np
import pytest
from small_stores import BYTES, disk, held, host, stored_records

from pfljax.engine.paging.records import StoreError
from pfljax.runtime.files import FileError


def damage(folder, name):
    file = folder / "clients" / name
    content = bytearray(file.read_bytes())
    content[: BYTES * 3 * 6] = bytes(len(content[: BYTES * 3 * 6]))
    file.write_bytes(content)


def test_damage_and_strangers_are_told_in_one_line(tmp_path):
    place = disk(tmp_path)
    place.write(1, np.asarray([2]), np.ones((1, BYTES), np.uint8))
    with pytest.raises(StoreError, match="its clients is 6, not 7; put back"):
        disk(tmp_path, clients=7)
    with pytest.raises(StoreError, match="its store is 'disk', not 'host'"):
        host(tmp_path)
    damage(tmp_path, "rows.bin")
    with pytest.raises(StoreError, match=r"the state of client 2 of .* is damaged"):
        disk(tmp_path).read(np.asarray([2]))
    (tmp_path / "clients" / "rows.bin").write_bytes(b"")
    with pytest.raises(StoreError, match=r"rows.bin is damaged: 0 bytes, expected 720"):
        disk(tmp_path)
    (tmp_path / "clients" / "store.json").write_text("{")
    with pytest.raises(FileError, match=r"store.json is missing or damaged"):
        disk(tmp_path)
    (tmp_path / "clients" / "store.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(
        FileError, match=r"store.json is missing or damaged .it lacks s"
    ):
        disk(tmp_path)


@pytest.mark.parametrize("name", ["rows.bin", "slots.bin"])
def test_a_missing_file_of_a_store_is_told(name, tmp_path):
    saved("disk", tmp_path)
    (tmp_path / "clients" / name).unlink()
    with pytest.raises(StoreError, match=f"{name} is no file, or missing; put back"):
        disk(tmp_path)
    (tmp_path / "clients" / name).mkdir()
    with pytest.raises(StoreError, match=f"{name} is no file, or missing; put back"):
        disk(tmp_path)
    (tmp_path / "clients" / name).rmdir()
    (tmp_path / "clients" / name).symlink_to("store.json")
    with pytest.raises(StoreError, match=f"{name} is a symbolic link.*; remove it"):
        disk(tmp_path)


def saved(kind, folder):
    """A store of 6 clients, 4 of them written, after rounds 1 and 2; its checksums."""
    folder.mkdir(exist_ok=True)
    place = host(folder) if kind == "host" else disk(folder)
    rng, sums = np.random.default_rng(0), {}
    for round_, ids in ((1, [0, 2]), (2, [2, 3, 5])):
        place.write(round_, np.asarray(ids), stored_records(rng, len(ids)))
        sums[round_] = place.save(round_)
        place.keep(list(sums))
    return place, sums


def reopen(kind, folder):
    return host(folder) if kind == "host" else disk(folder, writable=False)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("disk", "slots.bin"), ("disk", "rows.bin"), ("host", "round-2.npz")],
)
def test_no_flipped_bit_of_a_store_goes_unnoticed(kind, name, tmp_path):
    place, sums = saved(kind, tmp_path)
    wanted = held(place)
    file = tmp_path / "clients" / name
    whole = file.read_bytes()
    rng = np.random.default_rng(1)
    noticed = 0
    for bit in rng.choice(8 * len(whole), 300, replace=False).tolist():
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        try:
            again = reopen(kind, tmp_path)
            again.restore(2, sums[2])
            assert held(again) == wanted
        except StoreError:
            noticed += 1
    assert noticed > 30
    file.write_bytes(whole)


def zero_slot(folder, client):
    index = np.fromfile(folder / "slots.bin", np.uint32).reshape(6, -1, 2)
    newest = index[client, :, 0].argmax()
    index[client, newest] = 0
    index.tofile(folder / "slots.bin")


DAMAGE_OF_DISK = {
    "all records": lambda folder: damage(folder.parent, "slots.bin"),
    "the only record": lambda folder: zero_slot(folder, 5),
    "the newer of two": lambda folder: zero_slot(folder, 2),
}


@pytest.mark.parametrize("how", DAMAGE_OF_DISK)
def test_a_lost_record_on_disk_is_not_made_anew(how, tmp_path):
    _, sums = saved("disk", tmp_path)
    DAMAGE_OF_DISK[how](tmp_path / "clients")
    told = "client states are missing or not those saved at round 2; delete .*/2 to go"
    with pytest.raises(StoreError, match=told):
        reopen("disk", tmp_path).restore(2, sums[2])


def without(*names):
    def write(folder):
        with np.load(folder / "round-2.npz") as archive:
            arrays = {k: v for k, v in archive.items() if k not in names}
        np.savez(folder / "round-2.npz", **arrays)

    return write


def zeroed(folder):
    with np.load(folder / "round-2.npz") as archive:
        arrays = dict(archive)
    arrays["rows-0"][1] = 0
    np.savez(folder / "round-2.npz", **arrays)


DAMAGE_OF_HOST = {
    "empty": without("ids-0", "rows-0"),
    "rows alone": without("ids-0"),
    "a record of zeros": zeroed,
    "of another round": lambda f: shutil.copy(f / "round-1.npz", f / "round-2.npz"),
}


@pytest.mark.parametrize("how", DAMAGE_OF_HOST)
def test_a_lost_record_in_memory_is_not_made_anew(how, tmp_path):
    _, sums = saved("host", tmp_path)
    DAMAGE_OF_HOST[how](tmp_path / "clients")
    with pytest.raises(StoreError, match="client states are missing or not those"):
        host(tmp_path).restore(2, sums[2])


@pytest.mark.parametrize(
    "change",
    [
        {"format": "1"},
        {"slots": "3"},
        {"slots": None},
        {"slots": 0},
        {"oldest": -1},
        {"clients": None},
        {"leaves": {}},
        {"crc32": 1},
    ],
)
def test_a_description_of_another_form_is_told(change, tmp_path):
    saved("disk", tmp_path)
    file = tmp_path / "clients" / "store.json"
    content = json.loads(file.read_text())
    del content["crc32"]
    file.write_text(json.dumps(content | change))
    with pytest.raises(FileError, match=r"store\.json is missing or damaged"):
        disk(tmp_path)


@pytest.mark.parametrize("name", ["slots", "oldest", "format"])
def test_a_description_that_lacks_a_name_is_told(name, tmp_path):
    saved("disk", tmp_path)
    file = tmp_path / "clients" / "store.json"
    content = json.loads(file.read_text())
    del content[name]
    del content["crc32"]
    file.write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"store\.json is missing or damaged"):
        disk(tmp_path)


def test_what_a_kill_left_of_a_save_goes(tmp_path):
    place, _ = saved("host", tmp_path)
    (tmp_path / "clients" / "round-3.npz.part").write_text("half")
    place.keep([2])
    left = {path.name for path in (tmp_path / "clients").iterdir()}
    assert left == {"store.json", "round-2.npz"}


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    place = disk(tmp_path)
    monkeypatch.setattr("pfljax.engine.paging.disk.os.pwrite", lambda *args: 1)
    with pytest.raises(
        FileError,
        match=r"No space left on .*; make room on the disk",
    ):
        place.write(1, np.asarray([2]), np.ones((1, BYTES), np.uint8))
