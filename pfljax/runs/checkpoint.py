"""Saves and restores the state of a run with Orbax.

Orbax is imported when the first checkpoint is read or written, since its import takes
longer than the training of a small run.

They go through the `Checkpointer` of Orbax's new API, a front of its CheckpointManager.
A checkpoint of round r holds the `RunState` and, as Orbax's custom metadata, a `Meta`.
Orbax writes it in the background and renames it when it is complete.
"""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core.types import RunState
from pfljax.runs.partition import crc
from pfljax.runtime.files import CheckpointError
from pfljax.runtime.orbax import import_orbax
from pfljax.runtime.processes import ask, everywhere

FORMAT = 4
SHARED_BYTES = 2**24  # the smallest share of an array that a device writes
PATIENCE_SECONDS = 10**8  # until Orbax gives up a save: three years


class Meta(NamedTuple):
    """The metadata of a checkpoint, saved as JSON."""

    format: int
    round: int
    config: str  # digest of the run's settings
    log: int | None  # checksum of the run's log up to this round
    clients: int | list[int] | None  # checksums of the client states in stores
    arrays: str  # dtypes and shapes of the state
    rows: list[int]  # client states in each leaf, with padding for the devices
    crc: int | None  # checksum of the state
    seconds: float  # of training, up to this round


class Saved(NamedTuple):
    """The content of a checkpoint."""

    state: RunState
    meta: Meta


Save = Callable[..., Any]


@contextmanager
def writer(folder: Path, config_hash: str, keep: int = 2) -> Iterator[Save]:
    """Yields save(round, state, log, seconds, clients), asynchronous and atomic.

    `log` and `clients` are the checksums of the run's log up to this round and of the
    client states in its store; `seconds` is the time of training. The newest `keep`
    checkpoints are kept. The state may be donated as soon as `save` returns. It returns
    a future whose `result()` waits until the checkpoint is complete; the end of the
    block waits for the last one.
    """
    with ExitStack() as stack:
        # Opened by the first save, since nothing needs Orbax before.
        checkpointer = cache(lambda: stack.enter_context(_checkpointer(folder, keep)))
        pending: list[Any] = []  # the save that Orbax may still be writing

        def wait() -> None:
            # Each save of Orbax has a thread with an event loop, whose three open files
            # are closed only by result().
            while pending:
                pending.pop().result()

        def save(
            round_: int,
            state: RunState,
            log: int | None = None,
            seconds: float = 0.0,
            clients: int | list[int] | None = None,
        ) -> Any:
            wait()
            meta = Meta(
                format=FORMAT,
                round=round_,
                config=config_hash,
                log=log,
                clients=clients,
                arrays=_arrays(state),
                rows=_rows(state),
                crc=_crc(state),
                seconds=seconds,
            )
            # Orbax copies the state to the host before it returns, so that the state
            # may be donated while a thread still writes.
            response = checkpointer().save_checkpointables_async(
                round_, {"state": state}, force=True, custom_metadata=meta._asdict()
            )
            pending.append(response)
            return response

        yield save
        wait()


@contextmanager
def _checkpointer(folder: Path, keep: int) -> Iterator[Any]:
    """Orbax's writer of checkpoints in `folder`, which keeps the newest ones."""
    ocp = import_orbax()
    policies = ocp.training.preservation_policies
    decisions = ocp.training.save_decision_policies
    context = ocp.Context()
    # Weights do not compress well, and writing them raw is four times as fast.
    context.array.saving.use_compression = False
    # Orbax measures time-outs by the clock on the wall, which jumps while a machine is
    # suspended; that of a folder made in the background cannot be set.
    context.async_options.timeout_secs = PATIENCE_SECONDS
    context.async_options.create_directories_asynchronously = False
    # Devices that hold the same array share its writing. Each cuts out its share by its
    # own program, which takes longer to compile than a small array takes to write.
    context.array.saving.min_slice_bytes_for_replica_parallel = SHARED_BYTES
    with (
        context,
        ocp.training.Checkpointer(
            str(folder.resolve()),
            save_decision_policy=decisions.FixedIntervalPolicy(1),
            preservation_policy=policies.LatestN(keep),
            cleanup_tmp_directories=True,
        ) as checkpointer,
    ):
        yield checkpointer


def saved_rounds(folder: Path) -> list[int]:
    """The rounds with a complete checkpoint, in ascending order."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def restore(
    folder: Path,
    abstract: RunState,
    config_hash: str,
    say: Callable[[str], None] = print,
    repair: bool = True,
) -> Saved | None:
    """Loads the newest intact checkpoint in `folder`; None if there is no checkpoint.

    Args:
      folder: the folder of the checkpoints.
      abstract: shapes, dtypes and, to load it onto other devices, shardings.
      config_hash: digest of the settings with which it must have been saved.
      say: called with a line about each damaged checkpoint, which is skipped.
      repair: whether damaged checkpoints are renamed, as for a run that resumes.

    Raises:
      CheckpointError: a checkpoint belongs to another run or has another format, or
        none can be read.
    """
    rounds = ask(saved_rounds, folder)
    damaged = []
    for round_ in reversed(rounds):
        path = folder / str(round_)
        try:
            saved = everywhere(load, folder, round_, abstract, config_hash)
        except CheckpointError:
            raise
        except Exception as error:
            reason, *_ = str(error).split("\n")
            say(f"{path} is damaged ({reason})")
            damaged.append(path)
            continue
        if damaged:
            say(f"resuming from the checkpoint of round {round_}")
        if repair:
            for path in damaged:
                ask(lambda path=path: str(path.rename(f"{path}.damaged")))
        return saved
    if rounds:
        raise CheckpointError(
            f"none of the checkpoints in {folder} can be read; start again with "
            "another --out, or delete the folder"
        )
    return None


def read_meta(folder: Path, round_: int) -> Meta:
    """Reads the metadata of the checkpoint of this round.

    Raises:
      CheckpointError: the checkpoint has another format.
    """
    path = folder / str(round_)
    directory = str(path.resolve())  # Orbax takes absolute paths only
    content = import_orbax().checkpointables_metadata(directory).custom_metadata
    if not content:
        raise ValueError("its metadata are missing")
    if content["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {content['format']}, but this pfljax reads format "
            f"{FORMAT}; run again with another --out"
        )
    return Meta(**content)


def load(folder: Path, round_: int, abstract: RunState, config_hash: str) -> Saved:
    """Loads the checkpoint of this round; see `restore`."""
    path = folder / str(round_)
    # Checked first, since the other shapes of another config would look like damage.
    meta = read_meta(folder, round_)
    if meta.config != config_hash or meta.arrays != _arrays(abstract):
        raise CheckpointError(
            f"{path} was saved by a run with another config, model or store; choose "
            "another --out"
        )
    state = _read_state(path, abstract)
    if state is None:
        raise ValueError("some of its files cannot be read")
    if meta.rows == _rows(state) and _crc(state) not in (meta.crc, None):
        raise ValueError("its bytes do not match their checksum")
    return Saved(state, meta)


def _read_state(path: Path, abstract: RunState) -> RunState | None:
    """The state in a checkpoint; None if Orbax cannot read it, for whatever reason."""
    ocp = import_orbax()
    context = ocp.Context()
    # With another number of devices, the client states have another padding.
    context.array.loading.enable_padding_and_truncation = True
    checkpoint = str(path.resolve())  # Orbax takes absolute paths only
    with context, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of tasks that never ran
        with suppress(Exception):
            loaded = ocp.load_checkpointables(
                checkpoint, {"state": _with_sharding(abstract)}
            )
            return loaded["state"]
        gc.collect()  # these tasks
    return None


def _with_sharding(abstract: RunState) -> RunState:
    """The abstract state, on the first device where it has no sharding."""
    first = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def add_sharding(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None) or first
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(add_sharding, abstract)


def _arrays(state: RunState) -> str:
    """Dtypes and shapes of a state, without the number of client states."""
    leaves = [(leaf.dtype, leaf.shape[1:]) for leaf in jax.tree.leaves(state.clients)]
    others = jax.tree.leaves(state._replace(clients=()))
    leaves += [(leaf.dtype, leaf.shape) for leaf in others]
    return " ".join(f"{dtype}{list(shape)}" for dtype, shape in leaves)


def _rows(state: RunState) -> list[int]:
    """Client states in each leaf: more than clients if devices share them."""
    return [leaf.shape[0] for leaf in jax.tree.leaves(state.clients)]


def _crc(state: RunState) -> int | None:
    """CRC-32 of all leaves in order; None if no process holds all of them."""
    checksum = 0
    for leaf in jax.tree.leaves(state):
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            return None
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        checksum = crc(leaf, checksum)
    return checksum
