"""Client states in host memory, saved whole with every checkpoint.

The file round-R.bin has the ids i64[n] and records u8[n, bytes] after round R. It is
written before the checkpoint of round R, and deleted with it.
"""

import zlib
from pathlib import Path

import numpy as np

from pfljax.engine.records import (
    Owner,
    lost_records,
    read_description,
    write_description,
)
from pfljax.runtime import files

BLOCK_BYTES = 2**26  # of records written at a time to round-R.bin


class HostStore:
    """Records in host memory; `ids` are always distinct and ascending, i64[n]."""

    def __init__(self, folder: Path, owner: Owner):
        self.folder = folder
        self.nbytes = owner.layout.nbytes
        self.block = max(1, BLOCK_BYTES // max(1, self.nbytes))  # records
        # The system provides the memory of a record when it is first written.
        self.records = np.zeros((owner.clients, self.nbytes), np.uint8)
        self.written = np.zeros(owner.clients, bool)
        if read_description(folder, owner) is None:
            files.make_folder(folder)
            write_description(folder, owner.to_json())

    def restore(self, round_: int, checksum: int | None = None) -> None:
        """Goes back to the records after this round, or to none for round 0.

        It is called before any other method. `checksum` is the result of `save` at this
        round; None is not compared.

        Raises:
          StoreError: the records are not those that were saved.
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
            raise lost_records(self.folder, round_, error) from None
        if checksum not in (None, actual):
            raise lost_records(self.folder, round_)
        self.written[ids] = True

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(records u8[n, bytes], whether there was one bool[n])."""
        return self.records[ids], self.written[ids]

    def write(self, round_: int, ids: np.ndarray, records: np.ndarray) -> None:
        """Replaces the records of these clients after `round_` rounds."""
        self.records[ids] = records
        self.written[ids] = True

    def save(self, round_: int) -> int:
        """Saves the records that a checkpoint of this round needs; their checksum."""
        ids = np.flatnonzero(self.written)
        with (
            files.whole(self._file(round_), lasting=True) as part,
            open(part, "wb") as file,
        ):
            ids.tofile(file)
            checksum = zlib.crc32(ids.data)
            # Block by block, since a copy of all records may not fit into memory.
            for block in self._blocks(ids):
                records = self.records[block]
                records.tofile(file)
                checksum = zlib.crc32(records.data, checksum)
        return checksum

    def keep(self, rounds: list[int]) -> None:
        """Deletes the files of other rounds, and those that a kill left behind."""
        kept = {self._file(round_) for round_ in rounds}
        for file in self.folder.glob("round-*.bin*"):
            if file not in kept:
                file.unlink()

    def _blocks(self, ids: np.ndarray) -> list[np.ndarray]:
        return [ids[i : i + self.block] for i in range(0, len(ids), self.block)]

    def _file(self, round_: int) -> Path:
        return self.folder / f"round-{round_}.bin"
