"""The record of a client in a store, and whose store it is."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.registry import AtLeastOne, Count
from pfljax.runtime import documents, files
from pfljax.runtime.files import StoreError

FORMAT = 1  # of the folder; a reader refuses a greater one
FORM: dict[str, Any] = {
    "format": AtLeastOne,
    "store": str,
    "config": str,
    "clients": AtLeastOne,
    "leaves": list,
    "slots?": AtLeastOne,
    "oldest?": Count,
}
GO_ON = "put back the run's own folder, or start again with another --out"


class Store(Protocol):
    """Records of clients. `ids` are different and ascending, i64[n].

    A run calls `write` after each call of rounds, and `save`, then the checkpoint, then
    `keep` when that is committed. Killed at any moment, it opens the store again and
    calls `restore` with the round of the newest checkpoint.
    """

    def restore(self, round_: int, checksum: int | None = None) -> None:
        """Makes the records those after this round, 0 for none; called first.

        `checksum` is what `save` gave at this round; None is not compared.

        Raises:
          StoreError: they are not what was saved.
        """
        ...

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(records u8[n, bytes], whether there was one bool[n])."""
        ...

    def write(self, round_: int, ids: np.ndarray, records: np.ndarray) -> None:
        """Keeps what these clients are after `round_` rounds."""
        ...

    def save(self, round_: int) -> int:
        """Makes lasting what a checkpoint of this round needs; called before it.

        Gives a checksum of it, which the checkpoint keeps: by that a record that is
        missing or of another round is known, though it looks like one never written.
        """
        ...

    def keep(self, rounds: list[int]) -> None:
        """Only the checkpoints of these rounds may be gone back to from now on."""
        ...


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


def layout(client: Any) -> Layout:
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


def pack(layout: Layout, clients: Any, count: int) -> np.ndarray:
    """The records u8[count, bytes] of the first `count` stacked states."""
    columns = [np.zeros((count, 0), np.uint8)]  # some architecture may keep nothing
    for leaf in jax.tree.leaves(clients):
        rows = np.asarray(leaf)[:count]
        if rows.size:  # an empty leaf has no bytes to look at
            rows = np.ascontiguousarray(rows).reshape(count, -1)
            columns.append(rows.view(np.uint8))
    return np.concatenate(columns, axis=1)


def unpack(layout: Layout, records: np.ndarray) -> Any:
    """The stacked states, NumPy, of records u8[n, bytes]."""
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
    """Whose records these are: the content of store.json, which is checked."""

    store: str
    config: str  # digest of the run's config
    clients: int
    leaves: list[list[Any]]  # dtype and shape of each leaf of a client's state


def owner(kind: str, config: str, num_clients: int, layout: Layout) -> Owner:
    """The owner of the records of a run."""
    leaves = [
        [dtype.name, list(shape)]
        for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True)
    ]
    return Owner(store=kind, config=config, clients=num_clients, leaves=leaves)


def write_description(folder: Path, owner: Owner, **more: Any) -> None:
    """Writes store.json, whole and lasting."""
    content = {"format": FORMAT, **owner._asdict(), **more}
    documents.write(folder / "store.json", content, lasting=True)


def read_description(folder: Path, owner: Owner) -> dict[str, Any] | None:
    """The content of store.json, or None if there is none.

    Raises:
      FileError: it is damaged.
      StoreError: it is of a newer format, or another run's.
    """
    file = folder / "store.json"
    if not file.exists():
        return None
    odd = files.odd_entry(folder)
    if odd:
        raise StoreError(odd)
    content = documents.read(file, FORM)
    version = content["format"]
    if version > FORMAT:
        raise StoreError(
            f"{folder} has format {version}, this pfljax reads formats up to {FORMAT}; "
            "upgrade pfljax"
        )
    for name, ours in owner._asdict().items():
        saved = content[name]
        if saved != ours:
            raise StoreError(
                f"{folder} holds the client states of another run: its {name} is "
                f"{saved!r}, not {ours!r}; {GO_ON}"
            )
    return content


def differs(folder: Path, round_: int) -> StoreError:
    """The error for a store that does not have what was saved at this round."""
    return StoreError(
        f"{folder} is damaged: some of its client states are missing or not those "
        f"saved at round {round_}; delete {checkpoint_of(folder, round_)} to go back "
        "to the checkpoint before, or start again with another --out"
    )


def folders(run: Path, several: int | None) -> list[Path]:
    """The folders of a run's stores: RUN/clients, or one for each of `several`."""
    folder = run / "clients"
    if several is None:
        return [folder]
    return [folder / str(number) for number in range(several)]


def checkpoint_of(folder: Path, round_: int) -> Path:
    """The checkpoint of this round that goes with the store in `folder`."""
    run = folder.parent if folder.name == "clients" else folder.parent.parent
    return run / "checkpoints" / str(round_)
