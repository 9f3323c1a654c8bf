"""A store that is not what was saved is refused; no state is made anew in silence."""

import shutil

import numpy as np
import pytest
from small_stores import BYTES, disk, held, host, stored_records

from pfljax.runtime.files import FileError, StoreError


def damage(folder, name):
    file = folder / "clients" / name
    content = bytearray(file.read_bytes())
    content[: BYTES * 3 * 6] = bytes(len(content[: BYTES * 3 * 6]))
    file.write_bytes(content)


def test_damage_and_strangers_are_refused_in_one_line(tmp_path):
    place = disk(tmp_path)
    place.write(1, np.asarray([2]), np.ones((1, BYTES), np.uint8))
    with pytest.raises(StoreError, match="its clients is 6, not 7; put back"):
        disk(tmp_path, clients=7)
    with pytest.raises(StoreError, match="its store is 'disk', not 'host'"):
        host(tmp_path)
    damage(tmp_path, "records.bin")
    with pytest.raises(StoreError, match=r"the state of client 2 of .* is damaged"):
        disk(tmp_path).read(np.asarray([2]))
    (tmp_path / "clients" / "records.bin").write_bytes(b"")
    with pytest.raises(StoreError, match=r"records.bin is damaged: 0, expected 720"):
        disk(tmp_path)
    (tmp_path / "clients" / "store.json").write_text("{")
    with pytest.raises(FileError, match=r"store.json is missing or damaged"):
        disk(tmp_path)


@pytest.mark.parametrize("name", ["records.bin", "index.bin"])
def test_a_missing_file_of_a_store(name, tmp_path):
    saved("disk", tmp_path)
    (tmp_path / "clients" / name).unlink()
    with pytest.raises(StoreError, match=f"{name} is damaged: missing, expected"):
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
    [("disk", "index.bin"), ("disk", "records.bin"), ("host", "round-2.bin")],
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
    index = np.fromfile(folder / "index.bin", np.uint32).reshape(6, -1, 2)
    newest = index[client, :, 0].argmax()
    index[client, newest] = 0
    index.tofile(folder / "index.bin")


DAMAGE_OF_DISK = {
    "all records": lambda folder: damage(folder.parent, "index.bin"),
    "the only record": lambda folder: zero_slot(folder, 5),
    "the newer of two": lambda folder: zero_slot(folder, 2),
}


@pytest.mark.parametrize("how", DAMAGE_OF_DISK)
def test_a_lost_record_on_disk_is_not_made_anew(how, tmp_path):
    _, sums = saved("disk", tmp_path)
    DAMAGE_OF_DISK[how](tmp_path / "clients")
    message = (
        "client states are missing or not those saved at round 2; delete the check"
    )
    with pytest.raises(StoreError, match=message):
        reopen("disk", tmp_path).restore(2, sums[2])


def rewrite(folder, ids, records):
    with open(folder / "round-2.bin", "wb") as file:
        ids.tofile(file)
        records.tofile(file)


def contents(folder):
    content = np.fromfile(folder / "round-2.bin", np.uint8)
    count = len(content) // (8 + BYTES)
    ids = content[: 8 * count].view(np.int64)
    return ids, content[8 * count :].reshape(count, BYTES)


def lose_one(folder):
    ids, records = contents(folder)
    rewrite(folder, ids[1:], records[1:])


def zero_one(folder):
    ids, records = contents(folder)
    records[1] = 0
    rewrite(folder, ids, records)


DAMAGE_OF_HOST = {
    "missing": lambda f: (f / "round-2.bin").unlink(),
    "ids alone": lambda f: contents(f)[0].tofile(f / "round-2.bin"),
    "without a record": lose_one,
    "a record of zeros": zero_one,
    "of another round": lambda f: shutil.copy(f / "round-1.bin", f / "round-2.bin"),
}


@pytest.mark.parametrize("how", DAMAGE_OF_HOST)
def test_a_lost_record_in_memory_is_not_made_anew(how, tmp_path):
    _, sums = saved("host", tmp_path)
    DAMAGE_OF_HOST[how](tmp_path / "clients")
    with pytest.raises(StoreError, match="client states are missing or not those"):
        host(tmp_path).restore(2, sums[2])


def test_what_a_kill_left_of_a_save_goes(tmp_path):
    place, _ = saved("host", tmp_path)
    (tmp_path / "clients" / "round-3.bin.part").write_text("half")
    place.keep([2])
    left = {path.name for path in (tmp_path / "clients").iterdir()}
    assert left == {"store.json", "round-2.bin"}


def test_a_full_disk_is_one_line(tmp_path):
    place = disk(tmp_path)
    place.file = open("/dev/full", "r+b")  # noqa: SIM115
    with pytest.raises(OSError, match="No space left on"):
        place.write(1, np.asarray([2]), np.ones((1, BYTES), np.uint8))
