"""Saves and restores the state of a run. The only file that imports Orbax.

It does so where the first checkpoint is read or written: the import takes longer than
small runs train.

A checkpoint of round r holds the `RunState` and, as Orbax's custom metadata, format,
hash of the config and checksums (`checkpoint_meta`). Orbax writes it in the background
and renames it into place when whole.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from pfljax.core.types import RunState
from pfljax.runs import checkpoint_meta, checkpoint_rows, checksum
from pfljax.runs.checkpoint_folder import (
    check_key,
    is_listed,
    put_aside,
    refuse_odd_entries,
    saved_rounds,
)
from pfljax.runs.checkpoint_meta import Checksum, DamageError, Meta
from pfljax.runs.quiet import quiet, quiet_ends, quiet_read
from pfljax.runtime.files import CheckpointError
from pfljax.runtime.processes import ask, everywhere


class Saved(NamedTuple):
    """What a checkpoint holds."""

    state: RunState
    meta: Meta


Save = Callable[..., Any]
SHARED_BYTES = 2**24  # the least share of an array that a device writes


@contextmanager
def writer(folder: Path, config_hash: str, keep: int = 2) -> Iterator[Save]:
    """Gives save(round, state, log, clients), asynchronous and atomic.

    `log` and `clients` are the checksums of the run's log up to this round and of the
    client states in its store. It waits for the last one. The newest `keep`
    checkpoints stay. The state may be donated as soon as save returns; the `result()`
    of what it returns waits until it is committed.
    """
    with ExitStack() as stack:
        # Opened by the first save: until then nothing needs Orbax.
        checkpointer = cache(partial(stack.enter_context, _checkpointer(folder, keep)))
        pending: list[Any] = []  # the save that Orbax may still be writing

        def wait() -> None:
            # Orbax gives each save a thread with an event loop: three open files that
            # only its result() gives back.
            while pending:
                pending.pop().result()

        def save(
            round_: int,
            state: RunState,
            log: int | None = None,
            clients: Checksum = None,
        ) -> Any:
            wait()
            meta = _meta(config_hash, round_, state, log, clients)
            # Orbax copies the state to the host before it returns: then it may be
            # donated, while a thread still writes.
            response = checkpointer().save_checkpointables_async(
                round_, {"state": state}, force=True, custom_metadata=meta
            )
            pending.append(response)
            return response

        yield save
        wait()


@contextmanager
def _checkpointer(folder: Path, keep: int) -> Iterator[Any]:
    """Orbax's writer of checkpoints in `folder`, which clears up what others left."""
    ocp = _orbax()
    quiet_ends()
    policies: Any = ocp.training.preservation_policies
    decisions: Any = ocp.training.save_decision_policies
    with (
        quiet(),
        _uncounted(),
        _context(),
        ocp.training.Checkpointer(
            str(folder.resolve()),
            save_decision_policy=decisions.FixedIntervalPolicy(1),
            preservation_policy=policies.LatestN(keep),
            cleanup_tmp_directories=True,
        ) as checkpointer,
    ):
        yield checkpointer


def _orbax() -> Any:
    """Orbax, imported only now."""
    from orbax.checkpoint import v1

    return v1


def _meta(
    config_hash: str, round_: int, state: RunState, log: int | None, clients: Checksum
) -> dict[str, Any]:
    """What the checkpoint of this state says of itself."""
    crc = checksum.crc(state)
    total = checksum.total(state) if crc is None else None
    rows = checkpoint_rows.rows_of(state)
    devices = checkpoint_rows.devices_of(state)
    meta = Meta(round_, config_hash, log, clients, crc, total, rows, devices)
    return checkpoint_meta.to_json(meta)


def restore(
    folder: Path,
    abstract: RunState,
    config_hash: str | None,
    say: Callable[[str], None] = print,
    repair: bool = True,
) -> Saved | None:
    """The newest good checkpoint in `folder`, or None if nothing was ever saved there.

    `abstract` gives shapes, dtypes and, for other devices than it was saved on,
    shardings. Damaged checkpoints are named through `say` and the one before is tried;
    with `repair`, for a run that goes on, they are put aside. Raises CheckpointError if
    the config is another's (`config_hash` None skips this), the format is another, none
    can be read, or the folder holds what is no checkpoint.
    """
    ask(refuse_odd_entries, folder)
    rounds = ask(saved_rounds, folder)
    if rounds:
        # Before any is read: an import that fails tells nothing of a checkpoint.
        _orbax()
    for round_ in reversed(rounds):
        try:
            saved = everywhere(_load, folder / str(round_), abstract, config_hash)
        except CheckpointError:
            raise
        except Exception as error:
            if _passing(error):
                raise CheckpointError(
                    f"{folder / str(round_)} cannot be read now "
                    f"({_first_line(error)}); nothing was changed: mend "
                    "this and try again"
                ) from error
            reason = error if isinstance(error, DamageError) else "Orbax cannot read it"
            say(f"the checkpoint of round {round_} is damaged: {reason}")
            continue
        if round_ != rounds[-1]:
            say(f"taking the last good checkpoint, round {round_}")
        # Only now that an older one was read, and not deleted: some other program, or
        # a machine with more memory, may read it.
        for other in rounds:
            damaged = other > round_ or not ask(is_listed, folder / str(other))
            if repair and damaged:
                aside = ask(put_aside, folder / str(other))
                say(f"the damaged one of round {other} is kept as {aside}")
        return saved
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


def read_meta(folder: Path, round_: int) -> Meta:
    """What the checkpoint of this round says of itself.

    Raises:
      CheckpointError: it is of another format.
      DamageError: it is not what was written.
    """
    path = folder / str(round_)
    if not is_listed(path):
        raise DamageError("its _CHECKPOINT_METADATA is missing or damaged")
    with quiet_read():
        directory = str(path.resolve())  # Orbax takes absolute paths only
        content: Any = _orbax().checkpointables_metadata(directory).custom_metadata
        if not content and (path / "meta").exists():  # a part of its own in format 2
            content = _orbax().load_checkpointables(directory, {"meta": None})["meta"]
    return checkpoint_meta.from_json(path, content or {})


def load(
    folder: Path, round_: int, abstract: RunState, config_hash: str | None
) -> RunState:
    """The state saved after this round, or a CheckpointError; see `restore`."""
    path = folder / str(round_)
    _orbax()  # outside of the try: as in `restore`
    try:
        return _load(path, abstract, config_hash).state
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be read ({_first_line(error)})"
        ) from error


def _load(path: Path, abstract: RunState, config_hash: str | None) -> Saved:
    # The JSON part first: a state of another config has other shapes, which Orbax
    # would report as damage.
    meta = read_meta(path.parent, int(path.name))
    if config_hash is not None and meta.config != config_hash:
        raise CheckpointError(
            f"{path} was saved by a run with another config; use its own folder"
        )
    if (meta.rows is None) != (checkpoint_rows.rows_of(abstract) is None):
        raise CheckpointError(
            f"{path} was saved by a run with another store of its client states; "
            "go on with the store it was begun with"
        )
    ours: Any = jax.config
    check_key(path, ours.jax_default_prng_impl)
    saved = checkpoint_rows.as_saved(_placed(abstract), meta)
    with quiet_read():
        directory = str(path.resolve())
        loaded: Any = _orbax().load_checkpointables(directory, {"state": saved})
    state = loaded["state"]
    for old, new in zip(jax.tree.leaves(saved), jax.tree.leaves(state), strict=True):
        if old.dtype != new.dtype or old.shape != new.shape:
            raise DamageError(
                f"expected {old.dtype}{old.shape}, got {new.dtype}{new.shape}"
            )
    if meta.crc is not None and checksum.crc(state) not in (meta.crc, None):
        raise DamageError("its bytes do not match their checksum")
    if meta.sum is not None and checksum.total(state) != meta.sum:
        raise DamageError("its bytes do not match their checksum")
    return Saved(checkpoint_rows.fitted(state, _placed(abstract)), meta)


def _placed(abstract: RunState) -> RunState:
    """The abstract state with the first device wherever it names no sharding."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def place(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None) or here
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, abstract)


@contextmanager
def _uncounted() -> Iterator[None]:
    """Orbax logs bytes that TensorStore counts, who leaks 20 kB an answer: not here."""
    # A part of Orbax that it may move: then it counts.
    module = sys.modules.get("orbax.checkpoint._src.serialization.tensorstore_utils")
    count = "get_tensorstore_raw_bytes"
    if not hasattr(module, count):
        yield
        return
    asked = getattr(module, count)
    setattr(module, count, lambda *_, **__: 0)
    try:
        yield
    finally:
        setattr(module, count, asked)


def _context() -> Any:
    """How Orbax writes arrays."""
    context = _orbax().Context()
    saving = context.array.saving
    # Weights are noise to a compressor: written raw, four times as fast.
    saving.use_compression = False
    # Devices that hold the same array share its writing. Each cuts out its share by a
    # program of its own, which takes longer to compile than so few bytes to write.
    saving.min_slice_bytes_for_replica_parallel = SHARED_BYTES
    return context
