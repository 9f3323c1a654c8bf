"""Client states on disk: sparse files of slots, consistent with every checkpoint.

RUN/clients holds
    store.json  whose records these are, the number S of slots a client, and `oldest`,
                the first checkpoint that may still be gone back to
    rows.bin    u8[C, S, bytes], the records; sparse: an untouched slot takes no space
    slots.bin   u32[C, S, 2]: 1 + the round after which the slot was written, 0 for
                none, and the CRC-32 of its record; sparse as well

The state of a client after round r is in its slot with the largest round <= r. S is one
more than the checkpoints that are kept, so one slot is always free: no kept checkpoint
c needs it, for another has a larger round <= c. Only that one is written to. Both files
are flushed before a checkpoint is begun, nothing is written before it is committed,
and a run that goes on from round r forgets all slots of later rounds first. So
whatever a kill or a power failure tears is younger than the checkpoint gone back to.
"""

import errno
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.engine.paging.records import (
    GO_ON,
    Layout,
    Owner,
    StoreError,
    describe,
    description,
    sync,
)


class DiskStore:
    """Records in RUN/clients; in memory is 1 + round and CRC-32 of each slot only."""

    def __init__(
        self, folder: Path, owner: Owner, layout: Layout, keep: int, writable: bool
    ):
        self.folder, self.owner, self.nbytes = folder, owner, layout.nbytes
        told = description(folder, owner) or self._create(keep + 1)
        self.slots, self.oldest = told["slots"], told["oldest"]
        if keep >= self.slots:
            raise StoreError(
                f"keep is {keep}, but {folder} was made to keep {self.slots - 1} "
                f"checkpoints; choose keep <= {self.slots - 1}"
            )
        self.kept: list[int] = []
        self._check_sizes()
        mode = os.O_RDWR if writable else os.O_RDONLY
        self.files = [os.open(folder / name, mode) for name in self._sizes()]
        self.writable = writable
        self.index = np.fromfile(folder / "slots.bin", np.uint32)
        self.index = self.index.reshape(owner.clients, self.slots, 2)

    def __del__(self, close: Any = os.close):  # bound now: at exit os may be gone
        while getattr(self, "files", ()):
            close(self.files.pop())

    def restore(self, round_: int) -> None:
        """Forgets all that was written after this round."""
        if round_ and round_ < self.oldest:
            raise StoreError(
                f"{self.folder} goes back to round {self.oldest} and no further, but "
                f"the last good checkpoint is of round {round_}; start again with "
                "another --out"
            )
        late = self.index[..., 0] > round_ + 1
        self.index[late] = 0
        if not self.writable or not (late.any() or round_ == 0):
            return
        if round_ == 0:  # gives all space back
            for file, size in zip(self.files, self._sizes().values(), strict=True):
                os.ftruncate(file, 0)
                os.ftruncate(file, size)
        for client in np.flatnonzero(late.any(axis=1)) if round_ else ():
            self._write(1, client * self.index[0].nbytes, self.index[client])

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records, checked against their CRC-32."""
        index = self.index[ids]
        slot = index[..., 0].argmax(axis=1)
        newest = index[np.arange(len(ids)), slot]
        records = np.zeros((len(ids), self.nbytes), np.uint8)
        for row in np.flatnonzero(newest[:, 0]):
            place = (int(ids[row]) * self.slots + int(slot[row])) * self.nbytes
            read = os.preadv(self.files[0], [records[row]], place)
            if read < self.nbytes or zlib.crc32(records[row]) != newest[row, 1]:
                raise StoreError(
                    f"the state of client {ids[row]} in {self.folder} is damaged; "
                    "start again with another --out"
                )
        return records, newest[:, 0] > 0

    def write(self, round_: int, ids: np.ndarray, records: np.ndarray) -> None:
        """Writes each record to a free slot of its client, then tells so."""
        lists = ids.tolist(), self._free(ids).tolist(), records
        for client, slot, record in zip(*lists, strict=True):
            place = (client * self.slots + slot) * self.nbytes
            self._write(0, place, record)
            self.index[client, slot] = round_ + 1, zlib.crc32(record)
            self._write(1, client * self.index[0].nbytes, self.index[client])

    def save(self, round_: int) -> None:
        """Waits until all that was written has reached the disk."""
        for file in self.files:
            os.fsync(file)

    def keep(self, rounds: list[int]) -> None:
        """Frees the slots that other checkpoints needed."""
        self.kept = sorted(rounds)
        oldest = self.kept[0] if self.kept else 0
        if oldest != self.oldest:
            self.oldest = oldest
            self._describe()

    def _free(self, ids: np.ndarray) -> np.ndarray:
        """A slot of each client that no kept checkpoint needs, rather a used one."""
        written = self.index[ids][..., 0].astype(np.int64)
        free = np.ones(written.shape, bool)
        for round_ in self.kept:
            until = np.where(written <= round_ + 1, written, 0)
            needed, has = until.argmax(axis=1), until.any(axis=1)
            free[has, needed[has]] = False
        return (free * (1 + (written > 0))).argmax(axis=1)

    def _write(self, which: int, place: int, data: np.ndarray) -> None:
        try:
            done = os.pwrite(self.files[which], data.data, place)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            done = 0
        if done < data.nbytes:
            raise StoreError(
                f"the disk of {self.folder} is full; make room, and the same command "
                "goes on from the last checkpoint"
            )

    def _sizes(self) -> dict[str, int]:
        """Bytes of the files, holes included."""
        places = self.owner.clients * self.slots
        return {"rows.bin": places * self.nbytes, "slots.bin": places * 8}

    def _create(self, slots: int) -> dict[str, Any]:
        self.slots, self.oldest = slots, 0
        self.folder.mkdir(exist_ok=True)
        for name, size in self._sizes().items():
            try:
                with open(self.folder / name, "wb") as file:
                    file.truncate(size)
            except OSError as error:
                raise StoreError(
                    f"cannot make {self.folder / name} of {size:,} bytes, mostly holes "
                    f"({error.strerror}); choose another --out"
                ) from None
            sync(self.folder / name)
        self._describe()
        return {"slots": slots, "oldest": 0}

    def _describe(self) -> None:
        describe(self.folder, self.owner, slots=self.slots, oldest=self.oldest)

    def _check_sizes(self) -> None:
        for name, size in self._sizes().items():
            file = self.folder / name
            there = file.stat().st_size if file.exists() else None
            if there != size:
                raise StoreError(
                    f"{file} is damaged: {there} bytes, expected {size}; {GO_ON}"
                )


def room(clients: int, nbytes: int, writes: int, keep: int) -> int:
    """Bytes of disk that this many writes of records may take, in blocks of 4096."""
    touched = min(clients * (keep + 1), writes)
    return touched * (-(-nbytes // 4096) + 1) * 4096
