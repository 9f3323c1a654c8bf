"""Records of client states, and the run that they belong to.

A record has the bytes of all leaves of one client's state. A store (`host_store` or
`disk_store`) keeps a record of each client that has taken part, in the folder
RUN/clients, or RUN/clients/0, 1, ... if clients have several architectures. The file
store.json in this folder says which run the records belong to.

A run calls `write` of its store after each call of rounds, and `save`, then the
checkpoint, then `keep` when that is committed. Killed at any moment, it opens the store
again and calls `restore` with the round of the newest checkpoint. The checkpoint has a
checksum of its records: a lost record would otherwise look like one of a client that
never took part.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.runtime import documents
from pfljax.runtime.files import StoreError

FORMAT = 2  # of the folder; another one is refused
GO_ON = "put back the run's own folder, or start again with another --out"


class Layout(NamedTuple):
    """The layout of a client's state in a record."""

    structure: Any  # of the pytree
    dtype: np.dtype  # of a record, with a field for each leaf

    @property
    def nbytes(self) -> int:
        """Bytes of a record."""
        return self.dtype.itemsize


def make_layout(client: Any) -> Layout:
    """The layout of a client's state, given as shapes or as arrays."""
    leaves, structure = jax.tree.flatten(client)
    if any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves):
        raise ValueError(
            "the method keeps random keys with its clients, which only the store "
            '"device" can hold; keep jax.random.key_data of them'
        )
    fields = [(str(i), leaf.dtype, leaf.shape) for i, leaf in enumerate(leaves)]
    return Layout(structure, np.dtype(fields))


def pack(layout: Layout, clients: Any, count: int) -> np.ndarray:
    """The records u8[count, bytes] of the first `count` stacked states."""
    records = np.zeros(count, layout.dtype)
    names = layout.dtype.names or ()
    for name, leaf in zip(names, jax.tree.leaves(clients), strict=True):
        records[name] = np.asarray(leaf)[:count]
    # A record may have no bytes, which NumPy cannot view as others.
    if not layout.nbytes:
        return np.zeros((count, 0), np.uint8)
    return records.view(np.uint8).reshape(count, -1)


def unpack(layout: Layout, records: np.ndarray) -> Any:
    """The stacked states, in NumPy, of records u8[n, bytes]."""
    if layout.nbytes:
        fields = records.view(layout.dtype)[:, 0]
    else:
        fields = np.zeros(len(records), layout.dtype)
    leaves = [fields[name] for name in layout.dtype.names or ()]
    return jax.tree.unflatten(layout.structure, leaves)


class Owner(NamedTuple):
    """The run that records belong to."""

    store: str
    config: str  # digest of the run's config
    clients: int
    layout: Layout

    def to_json(self) -> dict[str, Any]:
        """The content of store.json."""
        dtype = self.layout.dtype
        fields = [dtype[name] for name in dtype.names or ()]
        leaves = [[field.base.name, list(field.shape)] for field in fields]
        return {"format": FORMAT, **self._asdict(), "layout": leaves}


def read_description(folder: Path, owner: Owner) -> dict[str, Any] | None:
    """The content of store.json, or None if there is none.

    Raises:
      FileError: it is damaged.
      StoreError: it belongs to another run, or has another format.
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


def write_description(folder: Path, content: dict[str, Any]) -> None:
    """Writes store.json."""
    documents.write(folder / "store.json", content, lasting=True)


def lost_records(
    folder: Path, round_: int, error: Exception | None = None
) -> StoreError:
    """The error for a store without the records that were saved at this round."""
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
