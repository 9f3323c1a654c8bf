"""Client states kept off the device: what a store is, and the one in host memory.

A store holds one record, the bytes of all leaves in order, for each client that has
taken part; for a client that never has there is none. RUN/clients holds store.json,
which says whose records these are, and what the kind of store needs:

    host  round-R.npz, all records of round R in blocks `ids-K`, `rows-K`; written whole
          before the checkpoint of round R, deleted with it
    disk  see pfljax.engine.paging.disk
"""

import zipfile
from pathlib import Path

import numpy as np

from pfljax.engine.paging.records import (
    Layout,
    Owner,
    StoreError,
    read_description,
    sync,
    write_description,
)

BLOCK_BYTES = 2**26  # of one array in round-R.npz


class HostStore:
    """Records in host memory, which the system commits as they are first written."""

    def __init__(self, folder: Path, owner: Owner, layout: Layout):
        self.folder = folder
        self.block = max(1, BLOCK_BYTES // layout.nbytes)  # records
        # Zeros that nobody has written take no memory: the system maps them late.
        self.records = np.zeros((owner.clients, layout.nbytes), np.uint8)
        self.written = np.zeros(owner.clients, bool)
        if read_description(folder, owner) is None:
            folder.mkdir(exist_ok=True)
            write_description(folder, owner)

    def restore(self, round_: int) -> None:
        """Takes the records of the checkpoint of this round; none for round 0."""
        if round_ == 0:
            return
        file = self._file(round_)
        try:
            with np.load(file) as archive:
                for block in range(len(archive.files) // 2):
                    ids = archive[f"ids-{block}"]
                    self.records[ids] = archive[f"rows-{block}"]
                    self.written[ids] = True
        except (OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
            raise StoreError(
                f"{file} cannot be read ({error}); delete "
                f"{self.folder.parent}/checkpoints/{round_} to go back to the "
                "checkpoint before, or start again with another --out"
            ) from None

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the records."""
        return self.records[ids], self.written[ids]

    def write(self, round_: int, ids: np.ndarray, records: np.ndarray) -> None:
        """Takes the records."""
        self.records[ids] = records
        self.written[ids] = True

    def save(self, round_: int) -> None:
        """Writes round-R.npz."""
        ids = np.flatnonzero(self.written)
        part = self.folder / "round.npz.part"
        with zipfile.ZipFile(part, "w") as archive:
            for block, start in enumerate(range(0, len(ids), self.block)):
                of_block = ids[start : start + self.block]
                _add(archive, f"ids-{block}", of_block)
                _add(archive, f"rows-{block}", self.records[of_block])
        # The bytes, then the name, then the folder that holds the name: after a power
        # failure a file of this name is whole.
        sync(part)
        part.replace(self._file(round_))
        sync(self.folder)

    def keep(self, rounds: list[int]) -> None:
        """Deletes the files of other rounds."""
        kept = {self._file(round_) for round_ in rounds}
        for file in self.folder.glob("round-*.npz"):
            if file not in kept:
                file.unlink()

    def _file(self, round_: int) -> Path:
        return self.folder / f"round-{round_}.npz"


def _add(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Adds what `np.load` finds under this name; of any size."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array)
