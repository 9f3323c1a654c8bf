"""Stores client states in two sparse files, for more clients than fit into memory.

records.bin  u8[C, S, bytes]: S slots of each client, each with a record of its state
index.bin    u32[C, S, 2]: of each slot 1 + the round after which it was written, or 0
             if it is empty, and the CRC-32 of its record

`write` puts records into slots that no kept checkpoint needs, and `read` finds the
newest one of each client. A run that was killed goes back to a checkpoint: `restore`
forgets the slots of later rounds, so that the newest ones are those of its round. There
is one slot more than checkpoints are kept, so that one is always free.

Both files are flushed to the disk before a checkpoint is written, and stay unchanged
until the checkpoint is complete, so that a kill or a power failure damages no record
that a checkpoint needs. Clients that never took part need no space. np.memmap takes
0.7 s to write 100 records of 0.8 MB, and these files 0.04 s; for 500 of 8 kB 1.4 s and
14 ms. tensorstore's transactional database grows without end
(experiments/speed/REPORT.md).
"""

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.engine.records import (
    GO_ON,
    Owner,
    lost_records,
    read_description,
    write_description,
)
from pfljax.runtime import files
from pfljax.runtime.files import StoreError

RECORDS = "records.bin"
INDEX = "index.bin"


class DiskStore:
    """Records in files, of which only the index is mapped into memory.

    The methods are those of `HostStore`.
    """

    def __init__(self, folder: Path, owner: Owner, keep: int, writable: bool):
        self.folder = folder
        self.owner = owner
        self.nbytes = owner.layout.nbytes
        self.kept: list[int] = []  # rounds of checkpoints
        description = read_description(folder, owner) or self._create(keep + 1)
        self.slots = description["slots"]
        self.oldest = description["oldest"]  # round to which it can be restored
        if keep >= self.slots:
            raise StoreError(
                f"keep is {keep}, but {folder} was made to keep {self.slots - 1} "
                f"checkpoints; choose keep <= {self.slots - 1}"
            )
        for name, size in self._sizes(self.slots).items():
            _check_size(folder / name, size)
        # A store that is only read forgets later rounds in memory, not on disk.
        self.index = np.memmap(
            folder / INDEX,
            np.uint32,
            "r+" if writable else "c",
            shape=(owner.clients, self.slots, 2),
        )
        mode = "r+b" if writable else "rb"
        self.file = open(folder / RECORDS, mode)  # noqa: SIM115

    def _create(self, slots: int) -> dict[str, Any]:
        """Makes the empty files, and returns their description."""
        files.make_folder(self.folder)
        for name, size in self._sizes(slots).items():
            try:
                with open(self.folder / name, "wb") as file:
                    file.truncate(size)
            except OSError as error:
                raise StoreError(
                    f"cannot make {self.folder / name} of {size:,} bytes, mostly holes "
                    f"({error.strerror}); choose another --out"
                ) from None
            files.sync(self.folder / name)
        # Last, so that a folder with a description has both of its files.
        return self._describe(slots, oldest=0)

    def _sizes(self, slots: int) -> dict[str, int]:
        """Bytes of the files, holes included."""
        count = self.owner.clients * slots
        return {RECORDS: count * self.nbytes, INDEX: count * 8}

    def _describe(self, slots: int, oldest: int) -> dict[str, Any]:
        """Writes store.json, and returns its content."""
        content = self.owner.to_json() | {"slots": slots, "oldest": oldest}
        write_description(self.folder, content)
        return content

    def restore(self, round_: int, checksum: int | None = None) -> None:
        """See `HostStore`."""
        if round_ and round_ < self.oldest:
            raise StoreError(
                f"{self.folder} goes back to round {self.oldest} and no further, but "
                f"the last good checkpoint is of round {round_}; start again with "
                "another --out"
            )
        # Otherwise a record of a round that is forgotten could later be the newest one.
        self.index[self.index[..., 0] > round_ + 1] = 0
        if round_ and checksum not in (None, self._checksum()):
            raise lost_records(self.folder, round_)

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `HostStore`; compares each record with its CRC-32."""
        slots, newest = _newest(self.index[ids])
        written = newest[:, 0] > 0
        records = np.zeros((len(ids), self.nbytes), np.uint8)
        for i in np.flatnonzero(written):
            start = self._start(ids[i], slots[i])
            os.preadv(self.file.fileno(), [records[i]], start)
            if zlib.crc32(records[i]) != newest[i, 1]:
                raise StoreError(
                    f"the state of client {ids[i]} of those in {self.folder} is "
                    "damaged; start again with another --out"
                )
        return records, written

    def write(self, round_: int, ids: np.ndarray, records: np.ndarray) -> None:
        """See `HostStore`; writes to a free slot of each client."""
        slots = self._free_slots(ids)
        # A kill in between does no harm: no checkpoint has these records yet.
        for client, slot, record in zip(ids, slots, records, strict=True):
            self.file.seek(self._start(client, slot))
            self.file.write(record)
        self.file.flush()
        self.index[ids, slots, 0] = round_ + 1
        self.index[ids, slots, 1] = [zlib.crc32(record) for record in records]

    def save(self, round_: int) -> int:
        """See `HostStore`; flushes both files."""
        os.fsync(self.file.fileno())
        self.index.flush()
        return self._checksum()

    def keep(self, rounds: list[int]) -> None:
        """See `HostStore`."""
        self.kept = sorted(rounds)
        oldest = self.kept[0] if self.kept else 0
        if oldest != self.oldest:
            # Before any freed slot is written: the store then refuses to go back to a
            # checkpoint whose records may be gone.
            self.oldest = oldest
            self._describe(self.slots, oldest)

    def _free_slots(self, ids: np.ndarray) -> np.ndarray:
        """A slot of each client that no kept checkpoint needs."""
        written = self.index[ids][..., 0].astype(np.int64)
        is_free = np.ones(written.shape, bool)
        for round_ in self.kept:
            until = np.where(written <= round_ + 1, written, 0)
            newest = until.argmax(axis=1)
            needed = until.any(axis=1)
            is_free[needed, newest[needed]] = False
        # The first one, but rather a slot that takes space on the disk already.
        preference = np.where(written > 0, 2, 1) * is_free
        return preference.argmax(axis=1)

    def _checksum(self) -> int:
        """CRC-32 of the newest index entry of each client."""
        _, newest = _newest(self.index)
        return zlib.crc32(newest.tobytes())

    def _start(self, client: Any, slot: Any) -> int:
        """The byte at which a record begins."""
        return (int(client) * self.slots + int(slot)) * self.nbytes


def _newest(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(slot i64[n], its entry u32[n, 2]) of each client; zeros where it has none."""
    slots = index[..., 0].argmax(axis=1)
    newest = np.asarray(index[np.arange(len(index)), slots])
    newest[newest[:, 0] == 0] = 0
    return slots, newest


def _check_size(file: Path, size: int) -> None:
    actual = file.stat().st_size if file.is_file() else "missing"
    if actual != size:
        raise StoreError(f"{file} is damaged: {actual}, expected {size} bytes; {GO_ON}")
