"""Several processes that run one experiment together.

Every process runs the same program with its own devices as part of one mesh. Only
process 0 writes into the run folder. It decides what depends on the clock or on files,
and `ask` sends its answer to the others. Without `connect` there is one process.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import jax
import numpy as np

from pfljax.runtime import devices
from pfljax.runtime.terminal import show

SHORTEST = 1024  # bytes of a message; longer ones are powers of two


def address(
    distributed: bool,
    coordinator: str | None,
    processes: int | None,
    process: int | None,
) -> dict[str, Any] | None:
    """The arguments of `connect`; None for a single process.

    Raises:
      ValueError: some of coordinator, processes and process are missing, or impossible.
    """
    arguments = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [f"--{name}" for name, value in arguments.items() if value is None]
    if not missing:
        _check(**arguments)
    elif len(missing) < len(arguments):
        raise ValueError(
            "--coordinator HOST:PORT, --processes N and --process I belong together; "
            f"missing: {' '.join(missing)}"
        )
    return arguments if distributed or not missing else None


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
    """Joins the processes of this run. Call it before anything else that uses JAX.

    Without arguments, JAX asks the cluster (Slurm, Open MPI, Kubernetes, TPU).
    `coordinator` is HOST:PORT of process 0.
    """
    devices.prepare()
    # JAX would catch SIGTERM to save; a run is safe against a kill, so it may end.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(coordinator, processes, process)


def first() -> bool:
    """Whether this is the process that writes and prints."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def ask(action: Callable[..., Any], *args: Any) -> Any:
    """The result of action(*args) in process 0, sent to every process.

    The result is JSON, or has arrays in it. An error is raised in every process.
    """
    if not jax.distributed.is_initialized():
        return action(*args)
    message = ""
    failure = None
    if first():
        try:
            message = json.dumps({"result": action(*args)}, default=_array_to_json)
        except Exception as error:
            # Sent to the others, which would wait for an answer forever.
            failure = error
            message = json.dumps({"error": str(error)})
    answer = json.loads(_broadcast(message.encode()), object_hook=_array_from_json)
    if failure is not None:
        raise failure
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


def _array_to_json(array: Any) -> dict[str, Any]:
    return {"dtype": str(array.dtype), "array": array.tolist()}


def _array_from_json(value: dict[str, Any]) -> Any:
    is_array = value.keys() == {"dtype", "array"}
    return np.array(value["array"], value["dtype"]) if is_array else value


def _broadcast(message: bytes) -> bytes:
    """The message of process 0, sent to every process."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    length = int(broadcast_one_to_all(np.int32(len(message))))
    # Every new length would compile a program: lengths are rounded up.
    buffer = np.zeros(max(SHORTEST, 1 << length.bit_length()), np.uint8)
    if first():
        buffer[:length] = np.frombuffer(message, np.uint8)
    return broadcast_one_to_all(buffer)[:length].tobytes()


def every(holds: bool) -> bool:
    """Whether it holds in every process."""
    if not jax.distributed.is_initialized():
        return holds
    from jax.experimental.multihost_utils import process_allgather

    return bool(process_allgather(np.asarray(holds)).all())


def everywhere(action: Callable[..., Any], *args: Any) -> Any:
    """The result of action(*args) in each process; a failure in one fails them all."""
    result = None
    failure = None
    try:
        result = action(*args)
    except Exception as error:
        # Raised below, after all processes have met; else the others would wait.
        failure = error
    if every(failure is None):
        return result
    raise failure or RuntimeError("it failed on another process")


@contextmanager
def hold(lock: AbstractContextManager[None]) -> Iterator[None]:
    """Process 0 holds the lock for all processes."""
    with ExitStack() as stack:
        ask(stack.enter_context, lock)
        yield


def check_same(what: str, value: str) -> None:
    """Raises a ValueError unless every process has the value of process 0."""
    if not every(ask(str, value) == value):
        raise ValueError(
            f"the processes of this run have different {what}; give all of them the "
            "same command and the same files"
        )


def say(line: str) -> None:
    """Prints one line on stderr, in process 0 only."""
    if first():
        show(line, sys.stderr)
