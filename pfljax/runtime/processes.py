"""Several processes, one run: what they must agree on, and who writes.

Whatever hangs on the clock or on files is decided by process 0, which alone writes into
the run folder, and sent to the others by `ask`. Without `connect` there is one process.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import jax
import numpy as np

from pfljax.runtime import messages

SHORTEST = 1024  # bytes of a message; longer ones are powers of two


def first() -> bool:
    """Whether this is the process that writes and speaks."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def ask(action: Callable[..., Any], *args: Any) -> Any:
    """What action(*args) gives on process 0, the only one to do it, on every process.

    It is a value of `messages.pack`. An error is raised on every process as well.
    """
    if not jax.distributed.is_initialized():
        return action(*args)
    message = b""
    failure = None
    if first():
        try:
            message = messages.pack(action(*args))
        except (ValueError, TypeError, RuntimeError, OSError) as error:
            # Sent to the others, who would wait for an answer for ever.
            failure = error
            message = messages.pack_error(error)
    answer = _broadcast(message)
    if failure is not None:
        raise failure
    return messages.unpack(answer)


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
