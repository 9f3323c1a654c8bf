"""Client states on disk: sparse files of slots, consistent with every checkpoint.

RUN/clients, of several architectures RUN/clients/0, 1, ... for each, holds
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

A checkpoint keeps the CRC-32 of the index entries that it needs, so that a slot which
is lost or altered is known; the record in it is, by its own. For 100 records of 1 MB
that took 0.085 s a round on one core of a busy machine.
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
    differs,
    read_description,
    write_description,
)
from pfljax.runtime import documents, files

ROWS = "rows.bin"
INDEX = "slots.bin"


class DiskStore:
    """Records in RUN/clients; in memory is 1 + round and CRC-32 of each slot only."""

    def __init__(
        self, folder: Path, owner: Owner, layout: Layout, keep: int, writable: bool
    ):
        self.folder = folder
        self.owner = owner
        self.nbytes = layout.nbytes
        self.writable = writable
        self.kept: list[int] = []  # rounds of checkpoints
        description = read_description(folder, owner) or self._create(keep + 1)
        if "slots" not in description or "oldest" not in description:
            raise documents.damaged(folder / "store.json", "it lacks slots or oldest")
        self.slots = description["slots"]
        self.oldest = description["oldest"]
        if keep >= self.slots:
            raise StoreError(
                f"keep is {keep}, but {folder} was made to keep {self.slots - 1} "
                f"checkpoints; choose keep <= {self.slots - 1}"
            )
        self._check_sizes()
        mode = os.O_RDWR if writable else os.O_RDONLY
        self.files = {name: os.open(folder / name, mode) for name in self._sizes()}
        index = np.fromfile(folder / INDEX, np.uint32)
        self.index = index.reshape(owner.clients, self.slots, 2)

    # The default binds os.close now: when the interpreter ends, os may be gone first.
    def __del__(self, close: Any = os.close):
        files = getattr(self, "files", {})
        while files:
            close(files.popitem()[1])

    def restore(self, round_: int, checksum: int | None = None) -> None:
        """Forgets all that was written after this round."""
        if round_ and round_ < self.oldest:
            raise StoreError(
                f"{self.folder} goes back to round {self.oldest} and no further, but "
                f"the last good checkpoint is of round {round_}; start again with "
                "another --out"
            )
        late = self.index[..., 0] > round_ + 1
        self.index[late] = 0
        if round_ and checksum not in (None, self._checksum()):
            raise differs(self.folder, round_)
        if not self.writable:
            return
        if round_ == 0:
            self._empty()
            return
        # On disk as well: else a later round that writes other slots of the client
        # would leave a record of the dropped future, of a larger round, beside its own.
        for client in np.flatnonzero(late.any(axis=1)).tolist():
            self._write_index(client)

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records, checked against their CRC-32."""
        slots, newest = _newest(self.index[ids])
        written = newest[:, 0] > 0
        records = np.zeros((len(ids), self.nbytes), np.uint8)
        for row in np.flatnonzero(written):
            start = self._start(int(ids[row]), int(slots[row]))
            count = os.preadv(self.files[ROWS], [records[row]], start)
            if count < self.nbytes or zlib.crc32(records[row]) != newest[row, 1]:
                raise StoreError(
                    f"the state of client {ids[row]} of those in {self.folder} is "
                    "damaged; start again with another --out"
                )
        return records, written

    def write(self, round_: int, ids: np.ndarray, records: np.ndarray) -> None:
        """Writes each record to a free slot of its client, then to the index."""
        slots = self._free_slots(ids)
        for client, slot, record in zip(
            ids.tolist(), slots.tolist(), records, strict=True
        ):
            # The order does not matter for a kill: a checkpoint trusts neither before
            # both are flushed, and what is torn is of a later round.
            self._write(ROWS, self._start(client, slot), record)
            self.index[client, slot, 0] = round_ + 1
            self.index[client, slot, 1] = zlib.crc32(record)
            self._write_index(client)

    def save(self, round_: int) -> int:
        """Waits until all that was written has reached the disk."""
        # Both files, before the checkpoint begins: once it is committed, a run trusts
        # that the records of its round are whole.
        for name, file in self.files.items():
            with files.told(self.folder / name):
                os.fsync(file)
        return self._checksum()

    def keep(self, rounds: list[int]) -> None:
        """Frees the slots that other checkpoints needed."""
        self.kept = sorted(rounds)
        oldest = self.kept[0] if self.kept else 0
        if oldest != self.oldest:
            # Lasting before any freed slot is written over: a run that finds only an
            # older checkpoint is then refused, and does not read a younger record.
            self.oldest = oldest
            self._describe()

    def _free_slots(self, ids: np.ndarray) -> np.ndarray:
        """A slot of each client that no kept checkpoint needs."""
        written = self.index[ids][..., 0].astype(np.int64)
        is_free = np.ones(written.shape, bool)
        for round_ in self.kept:
            until = np.where(written <= round_ + 1, written, 0)
            newest = until.argmax(axis=1)
            needed = until.any(axis=1)
            is_free[needed, newest[needed]] = False
        # One that was written before rather than a new one, which takes more of the
        # disk. The first of them: argmax of bools is the first that holds.
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

    def _start(self, client: int, slot: int) -> int:
        """The byte at which a record begins."""
        return (client * self.slots + slot) * self.nbytes

    def _write_index(self, client: int) -> None:
        index = self.index[client]
        self._write(INDEX, client * index.nbytes, index)

    def _write(self, name: str, start: int, data: np.ndarray) -> None:
        with files.told(self.folder / name):
            count = os.pwrite(self.files[name], data.data, start)
            # As much as there was room for.
            if count < data.nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _empty(self) -> None:
        """Gives all space back: a file cut to nothing and stretched is one hole."""
        for name, size in self._sizes().items():
            os.ftruncate(self.files[name], 0)
            os.ftruncate(self.files[name], size)

    def _sizes(self) -> dict[str, int]:
        """Bytes of the files, holes included."""
        records = self.owner.clients * self.slots
        return {ROWS: records * self.nbytes, INDEX: records * 8}

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
        # Last: a folder with a description has both of its files.
        self._describe()
        return {"slots": slots, "oldest": 0}

    def _describe(self) -> None:
        write_description(self.folder, self.owner, slots=self.slots, oldest=self.oldest)

    def _check_sizes(self) -> None:
        for name, size in self._sizes().items():
            file = self.folder / name
            if not file.is_file():
                raise StoreError(f"{file} is no file, or missing; {GO_ON}")
            actual = file.stat().st_size
            if actual != size:
                raise StoreError(
                    f"{file} is damaged: {actual} bytes, expected {size}; {GO_ON}"
                )


def _newest(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(slot i64[n], its entry u32[n, 2]) of each client; zeros where it has none."""
    slots = index[..., 0].argmax(axis=1)
    newest = index[np.arange(len(index)), slots]
    newest[newest[:, 0] == 0] = 0
    return slots, newest


def bytes_needed(clients: int, nbytes: int, writes: int, keep: int) -> int:
    """Bytes of disk that this many writes of records may take, in blocks of 4096."""
    touched = min(clients * (keep + 1), writes)
    blocks = -(-nbytes // 4096) + 1
    return touched * blocks * 4096
