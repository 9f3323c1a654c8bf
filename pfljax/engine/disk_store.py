"""Client states in two sparse files, so that they need not fit into memory.

records.bin  u8[C, S, bytes], the records in S slots for each client
index.bin    u32[C, S, 2]: 1 + the round after which the slot was written, 0 for an
             empty one, and the CRC-32 of its record

A client that never took part needs no space, and no round takes longer with more
clients. The state of a client after round r is in its slot with the largest round <= r.
There is one more slot than checkpoints are kept, so that one slot is always free: no
kept checkpoint needs it, and only that one is written. Both files are flushed before a
checkpoint begins, nothing is written before it is committed, and a run that continues
from round r first forgets all slots of later rounds. So a kill or a power failure
damages only records that are younger than the checkpoint to which the run goes back.

These files are faster than others that were measured. 100 records of 0.8 MB are written
in 0.04 s where np.memmap takes 0.7 s, and 500 of 8 kB in 14 ms instead of 1.4 s; a full
disk would also end the process. tensorstore's transactional database needs twice the
space after 20 calls of rounds, and grows without end (experiments/speed/REPORT.md).
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
        for name, size in self._sizes().items():
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

    def restore(self, round_: int, checksum: int | None = None) -> None:
        """See `HostStore`."""
        if round_ and round_ < self.oldest:
            raise StoreError(
                f"{self.folder} goes back to round {self.oldest} and no further, but "
                f"the last good checkpoint is of round {round_}; start again with "
                "another --out"
            )
        # On disk as well: otherwise a later round that writes other slots of the client
        # would leave a record of a larger round, of the discarded future, beside it.
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
        # A kill in between does no harm: both are flushed before a checkpoint needs
        # them, and a torn record is of a later round.
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
            # Flushed before any freed slot is overwritten, so that a run with only an
            # older checkpoint is refused, and does not read a younger record.
            self.oldest = oldest
            self._describe(self.slots)

    def _free_slots(self, ids: np.ndarray) -> np.ndarray:
        """A slot of each client that no kept checkpoint needs."""
        written = self.index[ids][..., 0].astype(np.int64)
        is_free = np.ones(written.shape, bool)
        for round_ in self.kept:
            until = np.where(written <= round_ + 1, written, 0)
            newest = until.argmax(axis=1)
            needed = until.any(axis=1)
            is_free[needed, newest[needed]] = False
        # Rather one that was written before than a new one, which takes more of the
        # disk. argmax of bools is the first True.
        reusable = is_free & (written > 0)
        return np.where(
            reusable.any(axis=1),
            reusable.argmax(axis=1),
            is_free.argmax(axis=1),
        )

    def _checksum(self) -> int:
        """CRC-32 of the newest index entry of each client."""
        _, newest = _newest(self.index)
        return zlib.crc32(newest.tobytes())

    def _start(self, client: Any, slot: Any) -> int:
        """The byte at which a record begins."""
        return (int(client) * self.slots + int(slot)) * self.nbytes

    def _sizes(self) -> dict[str, int]:
        """Bytes of the files, holes included."""
        slots = self.owner.clients * self.slots
        return {RECORDS: slots * self.nbytes, INDEX: slots * 8}

    def _create(self, slots: int) -> dict[str, Any]:
        self.slots = slots
        self.oldest = 0
        files.make_folder(self.folder)
        for name, size in self._sizes().items():
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
        return self._describe(slots)

    def _describe(self, slots: int) -> dict[str, Any]:
        content = self.owner.to_json() | {"slots": slots, "oldest": self.oldest}
        write_description(self.folder, content)
        return content


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
