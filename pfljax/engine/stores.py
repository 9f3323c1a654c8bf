"""Client states off the devices: in host memory, or on disk.

A store has a record, the bytes of all leaves in order, for each client that has taken
part. RUN/clients (with several architectures RUN/clients/0, 1, ...) holds store.json,
which says which run the records belong to, and:

    host  round-R.bin, the ids i64[n] and records u8[n, bytes] after round R; written
          whole before the checkpoint of round R, and deleted with it
    disk  records.bin  u8[C, S, bytes], the records in S slots for each client
          index.bin    u32[C, S, 2]: 1 + the round after which the slot was written, 0
                       for an empty one, and the CRC-32 of its record

Both files of the disk store are sparse: a client that never took part needs no space,
and no round takes longer with more clients.

The state of a client after round r is in its slot with the largest round <= r. There is
one more slot than checkpoints are kept, so one slot is always free: no kept checkpoint
needs it. Only that one is written to. Both files are flushed before a checkpoint
begins, nothing is written before it is committed, and a run that goes on from round r
first forgets all slots of later rounds. So whatever a kill or a power failure tears is
younger than the checkpoint that the run goes back to.

A checkpoint keeps a checksum of its records: by that a lost record is known, which
would look like one of a client that never took part.
"""

import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.runtime import documents, files
from pfljax.runtime.files import StoreError

FORMAT = 2  # of the folder; another one is refused
GO_ON = "put back the run's own folder, or start again with another --out"
RECORDS = "records.bin"
INDEX = "index.bin"
BLOCK_BYTES = 2**26  # of records written at once to round-R.bin


class Layout(NamedTuple):
    """How the state of one client lies in a record."""

    structure: Any  # of the pytree
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each leaf."""
        leaves = zip(self.shapes, self.dtypes, strict=True)
        return [int(np.prod(shape)) * dtype.itemsize for shape, dtype in leaves]

    @property
    def nbytes(self) -> int:
        """Bytes of a record."""
        return sum(self.sizes)


def make_layout(client: Any) -> Layout:
    """The layout of a client's state, given as shapes or as arrays."""
    leaves, structure = jax.tree.flatten(client)
    if any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves):
        raise ValueError(
            "the method keeps random keys with its clients, which only the store "
            '"device" can hold; keep jax.random.key_data of them'
        )
    return Layout(
        structure=structure,
        shapes=tuple(leaf.shape for leaf in leaves),
        dtypes=tuple(np.dtype(leaf.dtype) for leaf in leaves),
    )


def pack(clients: Any, count: int) -> np.ndarray:
    """The records u8[count, bytes] of the first `count` stacked states."""
    columns = [np.zeros((count, 0), np.uint8)]  # a client may keep nothing
    for leaf in jax.tree.leaves(clients):
        states = np.asarray(leaf)[:count]
        if states.size:  # an empty leaf has no bytes to look at
            states = np.ascontiguousarray(states).reshape(count, -1)
            columns.append(states.view(np.uint8))
    return np.concatenate(columns, axis=1)


def unpack(layout: Layout, records: np.ndarray) -> Any:
    """The stacked states, in NumPy, of records u8[n, bytes]."""
    leaves = []
    start = 0
    for shape, dtype, size in zip(
        layout.shapes, layout.dtypes, layout.sizes, strict=True
    ):
        columns = records[:, start : start + size]
        leaves.append(columns.view(dtype).reshape(len(records), *shape))
        start += size
    return jax.tree.unflatten(layout.structure, leaves)


class Owner(NamedTuple):
    """The run that records belong to: the content of store.json, which is checked."""

    store: str
    config: str  # digest of the run's config
    clients: int
    layout: Layout

    def to_json(self) -> dict[str, Any]:
        """The content of store.json."""
        shapes = zip(self.layout.shapes, self.layout.dtypes, strict=True)
        leaves = [[dtype.name, list(shape)] for shape, dtype in shapes]
        return {"format": FORMAT, **self._asdict(), "layout": leaves}


class HostStore:
    """Records in host memory, which the system commits as they are first written.

    `ids` are different and ascending, i64[n]. A run calls `write` after each call of
    rounds, and `save`, then the checkpoint, then `keep` when that is committed. Killed
    at any moment, it opens the store again and calls `restore` with the round of the
    newest checkpoint.
    """

    def __init__(self, folder: Path, owner: Owner):
        self.folder = folder
        self.nbytes = owner.layout.nbytes
        self.block = max(1, BLOCK_BYTES // max(1, self.nbytes))  # records
        self.records = np.zeros((owner.clients, self.nbytes), np.uint8)
        self.written = np.zeros(owner.clients, bool)
        if read_description(folder, owner) is None:
            files.make_folder(folder)
            _write_description(folder, owner.to_json())

    def restore(self, round_: int, checksum: int | None = None) -> None:
        """Goes back to the records after this round, 0 for none; called first.

        `checksum` is what `save` returned at this round; None is not compared.

        Raises:
          StoreError: they are not what was saved.
        """
        if round_ == 0:
            return
        try:
            size = self._file(round_).stat().st_size
            with open(self._file(round_), "rb") as file:
                ids = np.fromfile(file, np.int64, size // (8 + self.nbytes))
                actual = zlib.crc32(ids.data)
                for block in self._blocks(ids):
                    records = np.fromfile(file, np.uint8, len(block) * self.nbytes)
                    self.records[block] = records.reshape(len(block), self.nbytes)
                    actual = zlib.crc32(records.data, actual)
        except (OSError, ValueError, IndexError) as error:
            raise _lost(self.folder, round_, error) from None
        if checksum not in (None, actual):
            raise _lost(self.folder, round_)
        self.written[ids] = True

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(records u8[n, bytes], whether there was one bool[n])."""
        return self.records[ids], self.written[ids]

    def write(self, round_: int, ids: np.ndarray, records: np.ndarray) -> None:
        """Takes the records of these clients after `round_` rounds."""
        self.records[ids] = records
        self.written[ids] = True

    def save(self, round_: int) -> int:
        """Makes lasting what a checkpoint of this round needs; returns its checksum."""
        ids = np.flatnonzero(self.written)
        with (
            files.whole(self._file(round_), lasting=True) as part,
            open(part, "wb") as file,
        ):
            ids.tofile(file)
            checksum = zlib.crc32(ids.data)
            # One after another: a copy of all records may not fit into memory.
            for block in self._blocks(ids):
                records = self.records[block]
                records.tofile(file)
                checksum = zlib.crc32(records.data, checksum)
        return checksum

    def keep(self, rounds: list[int]) -> None:
        """Deletes what only the checkpoints of other rounds, or a kill, have left."""
        kept = {self._file(round_) for round_ in rounds}
        for file in self.folder.glob("round-*.bin*"):
            if file not in kept:
                file.unlink()

    def _blocks(self, ids: np.ndarray) -> list[np.ndarray]:
        return [ids[i : i + self.block] for i in range(0, len(ids), self.block)]

    def _file(self, round_: int) -> Path:
        return self.folder / f"round-{round_}.bin"


class DiskStore:
    """Records in files, of which only the index is in memory.

    The index is mapped into memory. Records are not: so 80 MB took 350 ms to write in
    place of 90, and a full disk would end the process.
    """

    def __init__(self, folder: Path, owner: Owner, keep: int, writable: bool):
        self.folder = folder
        self.owner = owner
        self.nbytes = owner.layout.nbytes
        self.kept: list[int] = []  # rounds of checkpoints
        description = read_description(folder, owner) or self._create(keep + 1)
        self.slots = description["slots"]
        self.oldest = description["oldest"]  # checkpoint that can be gone back to
        if keep >= self.slots:
            raise StoreError(
                f"keep is {keep}, but {folder} was made to keep {self.slots - 1} "
                f"checkpoints; choose keep <= {self.slots - 1}"
            )
        for name, size in self._sizes().items():
            _check_size(folder / name, size)
        # A store that is only read forgets later rounds in memory alone.
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
        # On disk as well: else a later round that writes other slots of the client
        # would leave a record of the dropped future, of a larger round, beside its own.
        self.index[self.index[..., 0] > round_ + 1] = 0
        if round_ and checksum not in (None, self._checksum()):
            raise _lost(self.folder, round_)

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `HostStore`; each record is compared with its CRC-32."""
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
        # The order does not matter for a kill: a checkpoint trusts neither before both
        # are flushed, and what is torn is of a later round.
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
            # Lasting before any freed slot is written over: a run that has only an
            # older checkpoint is then refused, and does not read a younger record.
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
        # Last: a folder with a description has both of its files.
        return self._describe(slots)

    def _describe(self, slots: int) -> dict[str, Any]:
        content = self.owner.to_json() | {"slots": slots, "oldest": self.oldest}
        _write_description(self.folder, content)
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


Store: TypeAlias = HostStore | DiskStore


def read_description(folder: Path, owner: Owner) -> dict[str, Any] | None:
    """The content of store.json, or None if there is none.

    Raises:
      FileError: it is damaged.
      StoreError: it belongs to another run, or is of another format.
    """
    file = folder / "store.json"
    if not file.exists():
        return None
    content = documents.read(file)
    for name, ours in owner.to_json().items():
        saved = content.get(name)
        if saved != ours:
            raise StoreError(
                f"{folder} holds other client states: its {name} is {saved!r}, not "
                f"{ours!r}; {GO_ON}"
            )
    return content


def _write_description(folder: Path, content: dict[str, Any]) -> None:
    documents.write(folder / "store.json", content, lasting=True)


def _lost(folder: Path, round_: int, error: Exception | None = None) -> StoreError:
    """The error for a store that does not have what was saved at this round."""
    reason = f" ({error})" if error else ""
    return StoreError(
        f"{folder} is damaged: some of its client states are missing or not those "
        f"saved at round {round_}{reason}; delete the checkpoint of that round to go "
        "back to the one before, or start again with another --out"
    )


def store_folders(run: Path, several: int | None) -> list[Path]:
    """The folders of a run's stores: RUN/clients, or one for each of `several`."""
    folder = run / "clients"
    if several is None:
        return [folder]
    return [folder / str(number) for number in range(several)]
