"""Client states kept off the device: what a store is, and the one in host memory.

A store holds one record, the bytes of all leaves in order, for each client that has
taken part; for a client that never has there is none. RUN/clients, of several
architectures RUN/clients/0, 1, ... for each, holds store.json, which says whose records
these are, and what the kind of store needs:

    host  round-R.npz, all records of round R in blocks `ids-K`, `rows-K`; written whole
          before the checkpoint of round R, deleted with it; the checkpoint keeps a
          CRC-32 over those of the blocks, which the format has in any case
    disk  see pfljax.engine.paging.disk
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from pfljax.engine.paging.records import (
    Layout,
    Owner,
    StoreError,
    checkpoint_of,
    differs,
    read_description,
    write_description,
)
from pfljax.runtime import files

BLOCK_BYTES = 2**26  # of one array in round-R.npz


class HostStore:
    """Records in host memory, which the system commits as they are first written."""

    def __init__(self, folder: Path, owner: Owner, layout: Layout):
        self.folder = folder
        self.block = max(1, BLOCK_BYTES // max(1, layout.nbytes))  # records
        # Zeros that nobody has written take no memory: the system maps them late.
        self.records = np.zeros((owner.clients, layout.nbytes), np.uint8)
        self.written = np.zeros(owner.clients, bool)
        if read_description(folder, owner) is None:
            files.make_folder(folder)
            write_description(folder, owner)

    def restore(self, round_: int, checksum: int | None = None) -> None:
        """Takes the records of the checkpoint of this round; none for round 0."""
        if round_ == 0:
            return
        file = self._file(round_)
        try:
            with zipfile.ZipFile(file) as archive:
                if checksum not in (None, _checksum(archive)):
                    raise differs(self.folder, round_)
                for block in range(len(archive.namelist()) // 2):
                    ids = _read(archive, f"ids-{block}")
                    self.records[ids] = _read(archive, f"rows-{block}")
                    self.written[ids] = True
        except StoreError:
            raise
        except (*files.DAMAGE, IndexError) as error:
            raise StoreError(
                f"{file} cannot be read ({error}); delete "
                f"{checkpoint_of(self.folder, round_)} to go back to the checkpoint "
                "before, or start again with another --out"
            ) from None

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the records."""
        return self.records[ids], self.written[ids]

    def write(self, round_: int, ids: np.ndarray, records: np.ndarray) -> None:
        """Takes the records."""
        self.records[ids] = records
        self.written[ids] = True

    def save(self, round_: int) -> int:
        """Writes round-R.npz."""
        ids = np.flatnonzero(self.written)
        with (
            files.whole(self._file(round_), lasting=True) as part,
            zipfile.ZipFile(part, "w") as archive,
        ):
            for block, start in enumerate(range(0, len(ids), self.block)):
                of_block = ids[start : start + self.block]
                _add(archive, f"ids-{block}", of_block)
                _add(archive, f"rows-{block}", self.records[of_block])
            return _checksum(archive)

    def keep(self, rounds: list[int]) -> None:
        """Deletes the files of other rounds, and what a kill has left half written."""
        kept = {self._file(round_) for round_ in rounds}
        for file in self.folder.glob("round-*.npz*"):
            if file not in kept:
                file.unlink()

    def _file(self, round_: int) -> Path:
        return self.folder / f"round-{round_}.npz"


def _add(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Adds what `np.load` finds under this name; of any size."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array)


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array, read to its end: there zipfile compares the CRC-32 of its bytes."""
    with archive.open(f"{name}.npy") as file:
        array = np.lib.format.read_array(file)
        if file.read(1):
            raise ValueError(f"{name} is longer than its header says")
    return array


def _checksum(archive: zipfile.ZipFile) -> int:
    """CRC-32 over names, sizes and CRC-32 of all arrays: nothing is read for it."""
    arrays = [(info.filename, info.file_size, info.CRC) for info in archive.infolist()]
    return zlib.crc32(repr(arrays).encode())
