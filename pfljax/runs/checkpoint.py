"""Saves and restores the state of a run. The only file that imports Orbax.

A checkpoint of round r holds the `RunState` and a JSON part: format, hash of the
config, CRC of the state. Orbax writes it in the background and renames it into place
when whole.
"""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from orbax.checkpoint import v1 as ocp

from pfljax.core.types import RunState
from pfljax.runs import checksum
from pfljax.runtime.processes import ask, everywhere

FORMAT = 1  # of the checkpoint; a reader refuses a greater one
Save = Callable[[int, RunState], Any]


class CheckpointError(RuntimeError):
    """No checkpoint can be used; the message says why and what to do."""


class DamageError(ValueError):
    """A checkpoint that reads, but is not what was saved."""


@contextmanager
def writer(folder: Path, config_hash: str, keep: int = 2) -> Iterator[Save]:
    """Gives save(round, state), asynchronous and atomic; waits for the last at the end.

    The newest `keep` checkpoints stay. The state may be donated as soon as save
    returns; the `result()` of what it returns waits until it is committed.
    """
    policies: Any = ocp.training.preservation_policies
    decisions: Any = ocp.training.save_decision_policies
    with (
        _quiet(),
        _context(),
        ocp.training.Checkpointer(
            str(folder.resolve()),
            save_decision_policy=decisions.FixedIntervalPolicy(1),
            preservation_policy=policies.LatestN(keep),
            cleanup_tmp_directories=True,
        ) as checkpointer,
    ):

        def save(round_: int, state: RunState) -> Any:
            crc = checksum.crc(state)
            meta = {
                "format": FORMAT,
                "config": config_hash,
                "crc": crc,
                "sum": checksum.total(state) if crc is None else None,
                "rows": _rows(state),
                "devices": _devices(state),
            }
            parts = {"state": state, "meta": meta}
            # Orbax copies the state to the host before it returns: then it may be
            # donated, while a thread still writes.
            return checkpointer.save_checkpointables_async(round_, parts, force=True)

        yield save


def restore(
    folder: Path,
    abstract: RunState,
    config_hash: str | None,
    say: Callable[[str], None] = print,
    repair: bool = True,
) -> RunState | None:
    """The newest good state in `folder`, or None if nothing was ever saved there.

    `abstract` gives shapes, dtypes and, for other devices than it was saved on,
    shardings. Damaged checkpoints are named through `say` and the one before is tried;
    with `repair`, for a run that goes on, they are deleted. Raises CheckpointError if
    the config is another's (`config_hash` None skips this), the format is newer, or
    none can be read.
    """
    rounds = ask(saved_rounds, folder)
    for round_ in reversed(rounds):
        try:
            state = everywhere(_load, folder / str(round_), abstract, config_hash)
        except CheckpointError:
            raise
        except Exception as error:
            if _passing(error):
                raise CheckpointError(
                    f"{folder / str(round_)} cannot be read now "
                    f"({_first_line(error)}); nothing was deleted: mend "
                    "this and try again"
                ) from error
            reason = error if isinstance(error, DamageError) else "Orbax cannot read it"
            say(f"the checkpoint of round {round_} is damaged: {reason}")
            continue
        # Only now that an older one was read: else a passing fault would delete all.
        damaged = rounds[rounds.index(round_) + 1 :]
        if repair:
            for later in damaged:
                ask(shutil.rmtree, folder / str(later))
        if round_ != rounds[-1]:
            say(f"taking the last good checkpoint, round {round_}")
        return state
    if rounds:
        raise CheckpointError(
            f"none of the checkpoints in {folder} can be read; "
            "start again with another --out, or delete the folder"
        )
    return None


def _passing(error: BaseException) -> bool:
    """Whether the machine refused the read: that tells nothing of the checkpoint."""
    if isinstance(error, MemoryError | PermissionError):
        return True
    # Orbax passes on what TensorStore says as the text of another exception.
    text = f"{error} {error.__cause__}"
    refusals = ("PERMISSION_DENIED", "Permission denied", "RESOURCE_EXHAUSTED")
    return any(refusal in text for refusal in refusals)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def saved_rounds(folder: Path) -> list[int]:
    """Rounds with a finished checkpoint, ascending."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def load(
    folder: Path, round_: int, abstract: RunState, config_hash: str | None
) -> RunState:
    """The state saved after this round; `restore` takes the newest.

    Raises a CheckpointError where it cannot be read.
    """
    path = folder / str(round_)
    try:
        return _load(path, abstract, config_hash)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be read ({_first_line(error)})"
        ) from error


def _load(path: Path, abstract: RunState, config_hash: str | None) -> RunState:
    with _quiet():
        directory = str(path.resolve())  # Orbax takes absolute paths only
        # The JSON part first: a state of another config has other shapes, which Orbax
        # would report as damage.
        meta: Any = ocp.load_checkpointables(directory, {"meta": None})["meta"]
        if meta["format"] > FORMAT:
            raise CheckpointError(
                f"{path} has format {meta['format']}, this pfljax reads formats up to "
                f"{FORMAT}; upgrade pfljax"
            )
        if config_hash is not None and meta["config"] != config_hash:
            raise CheckpointError(
                f"{path} was saved by a run with another config; use its own folder"
            )
        if "rows" in meta and (meta["rows"] is None) != (_rows(abstract) is None):
            raise CheckpointError(
                f"{path} was saved by a run with another store of its client states; "
                "go on with the store it was begun with"
            )
        saved = _with_rows(_placed(abstract), meta)
        state: Any = ocp.load_checkpointables(directory, {"state": saved})["state"]
    for old, new in zip(jax.tree.leaves(saved), jax.tree.leaves(state), strict=True):
        if old.dtype != new.dtype or old.shape != new.shape:
            raise DamageError(
                f"expected {old.dtype}{old.shape}, got {new.dtype}{new.shape}"
            )
    if meta["crc"] is not None and checksum.crc(state) not in (meta["crc"], None):
        raise DamageError("its bytes do not match their checksum")
    if meta.get("sum") is not None and checksum.total(state) != meta["sum"]:
        raise DamageError("its bytes do not match their checksum")
    return _fit_rows(state, _placed(abstract))


def _placed(abstract: RunState) -> RunState:
    """The abstract state with the first device wherever it names no sharding."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def place(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None) or here
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, abstract)


def _rows(state: RunState) -> int | None:
    """Rows of the client states; more than clients where devices share them."""
    leaves = jax.tree.leaves(state.clients)
    return leaves[0].shape[0] if leaves else None


def _devices(state: RunState) -> int:
    """Devices that share the client states."""
    leaves = jax.tree.leaves(state.clients)
    return len(leaves[0].sharding.device_set) if leaves else 1


def _with_rows(abstract: RunState, meta: dict[str, Any]) -> RunState:
    """The same with the saved number of client rows, each device holding all of them.

    A run on another number of devices has its states padded to other equal blocks.
    """
    rows = meta.get("rows")
    ours = _rows(abstract)
    if rows is None or ours is None or rows == ours:
        return abstract
    if abs(rows - ours) >= max(meta["devices"], _devices(abstract)):
        raise DamageError(f"expected {ours} client states, got {rows}")
    # The rows of another number of devices do not divide among ours.
    everywhere = abstract.round.sharding

    def as_saved(leaf: Any) -> Any:
        shape = (rows, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=everywhere)

    return abstract._replace(clients=jax.tree.map(as_saved, abstract.clients))


def _fit_rows(state: RunState, abstract: RunState) -> RunState:
    """The state with as many client rows as `abstract`; what is cut is padding."""

    def of_leaf(leaf: Any, wanted: Any) -> Any:
        rows = jnp.minimum(jnp.arange(wanted.shape[0]), leaf.shape[0] - 1)
        return jax.device_put(leaf[rows], wanted.sharding)

    if _rows(state) == _rows(abstract):
        return state
    return state._replace(
        clients=jax.tree.map(of_leaf, state.clients, abstract.clients)
    )


def _context() -> Any:
    """Weights are noise to a compressor: written raw, four times as fast."""
    context = ocp.Context()
    context.array.saving.use_compression = False
    return context


@contextmanager
def _quiet() -> Iterator[None]:
    """Orbax logs long traces for what is raised as well."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
