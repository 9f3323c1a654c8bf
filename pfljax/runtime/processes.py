"""Several processes, one run: how they meet, and what they must agree on.

Every process runs the same program with its own devices as part of one mesh. Whatever
hangs on the clock or on files is decided by process 0, which alone writes into the run
folder, and sent to the others by `ask`. Without `connect` there is one process.
"""

import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import jax
import numpy as np

from pfljax.runtime import devices

MEETING = 30  # seconds that a process which ends waits for the others to end
SHORTEST = 1024  # bytes of a message; longer ones are powers of two
DETECTED = "Slurm, Open MPI, Kubernetes, TPU"


def address(
    distributed: bool,
    coordinator: str | None,
    processes: int | None,
    process: int | None,
) -> dict[str, Any] | None:
    """The arguments of `connect`; None for a process that is alone.

    Raises:
      ValueError: coordinator, processes and process are half given, or odd.
    """
    given = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise ValueError(
            "--coordinator HOST:PORT, --processes N and --process I belong together; "
            f"missing: {' '.join(missing)}"
        )
    if not missing:
        _check(**given)
    return given if distributed or not missing else None


def _check(coordinator: Any, processes: Any, process: Any) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"--coordinator is {coordinator!r}; expected HOST:PORT")
    if not 0 <= process < processes:
        raise ValueError(
            f"--process is {process} of --processes {processes}; "
            f"expected 0 <= process < {processes}"
        )


def connect(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Joins the processes of this run; comes before anything else that uses JAX.

    Without arguments, JAX asks the cluster (Slurm, Open MPI, Kubernetes, TPU).
    `coordinator` is HOST:PORT of process 0.

    Raises:
      ValueError: no cluster is found and nothing is given.
    """
    devices.prepare()
    # JAX would catch SIGTERM to save; a run is safe against a kill, so it may end.
    jax.config.update("jax_enable_preemption_service", False)
    if process == 0:
        others = f"{processes} processes at {coordinator}"
        print(f"pfljax: waiting for all {others}", file=sys.stderr, flush=True)
    try:
        jax.distributed.initialize(
            coordinator, processes, process, shutdown_timeout_seconds=MEETING
        )
    except ValueError as error:
        if coordinator is not None:
            raise
        raise ValueError(
            f"--distributed: no cluster was found ({DETECTED}); give --coordinator "
            "HOST:PORT --processes N --process I"
        ) from error


def first() -> bool:
    """Whether this is the process that writes and speaks."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def ask(action: Callable[..., Any], *args: Any) -> Any:
    """What action(*args) gives on process 0, the only one to do it, on every process.

    An error is raised on every process as well.
    """
    if not jax.distributed.is_initialized():
        return action(*args)
    value = None
    failure = None
    if first():
        try:
            value = action(*args)
        except (ValueError, RuntimeError, OSError) as error:
            # Sent to the others, who would wait for an answer for ever.
            failure = error
    value, failure = pickle.loads(_broadcast(pickle.dumps((value, failure))))
    if failure is not None:
        raise failure
    return value


def _broadcast(message: bytes) -> bytes:
    """The message of process 0, on every process."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    length = int(broadcast_one_to_all(np.int32(len(message))))
    # Every new length would compile a program: lengths are rounded up.
    buffer = np.zeros(max(SHORTEST, 1 << length.bit_length()), np.uint8)
    if first():
        buffer[:length] = np.frombuffer(message, np.uint8)
    return broadcast_one_to_all(buffer)[:length].tobytes()


def every(holds: bool) -> bool:
    """Whether it holds on every process."""
    if not jax.distributed.is_initialized():
        return holds
    from jax.experimental.multihost_utils import process_allgather

    return bool(process_allgather(np.asarray(holds)).all())


def everywhere(action: Callable[..., Any], *args: Any) -> Any:
    """What action(*args) gives, done by every process; one failure is everybody's."""
    value = None
    failure = None
    try:
        value = action(*args)
    except Exception as error:
        # Raised below, after all have met: who left now would let them wait.
        failure = error
    if every(failure is None):
        return value
    raise failure or RuntimeError("it failed on another process")


@contextmanager
def holding(lock: AbstractContextManager[None]) -> Iterator[None]:
    """Process 0 holds the lock for all of them."""
    with ExitStack() as stack:
        ask(stack.enter_context, lock)
        yield


def check_same(what: str, value: str) -> None:
    """Raises a ValueError unless the value is that of process 0 on every process."""
    if not every(ask(str, value) == value):
        raise ValueError(
            f"the processes of this run have different {what}; give all of them the "
            "same command and the same files"
        )


def say(line: str) -> None:
    """One line on stderr, of process 0."""
    if first():
        print(line, file=sys.stderr, flush=True)
