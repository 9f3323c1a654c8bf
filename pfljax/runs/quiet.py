"""Keeps Orbax and TensorStore from writing of what they raise as well.

Beside logs that are: warnings of Python on tasks that nobody waited for, and, from
threads of TensorStore, that the loop they would have told is closed.
"""

import gc
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

CLOSED = (  # what Python says to who comes back too late
    "Event loop is closed",
    "cannot schedule new futures after shutdown",
    "cannot schedule new futures after interpreter shutdown",
)
STRAGGLERS = 0.2  # seconds in which threads come back from a read that failed


@contextmanager
def quiet() -> Iterator[None]:
    """Orbax logs long traces for what is raised as well: not within the block."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def quiet_read() -> Iterator[None]:
    """`quiet` around a read, which may fail: its error is raised, and that is all."""
    hooks = sys.excepthook, sys.unraisablehook
    # An error of the block is raised, and reaches no hook before they are back.
    sys.excepthook = _drop
    sys.unraisablehook = _drop
    try:
        with quiet(), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            try:
                yield
            except Exception as error:
                _let_go(error)
                raise
    finally:
        sys.excepthook, sys.unraisablehook = hooks


def _let_go(error: BaseException) -> None:
    """Ends the tasks that the error's frames still hold, now and not later."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    gc.collect()
    time.sleep(STRAGGLERS)
    # What came back held others.
    gc.collect()


def _is_another_s(record: logging.LogRecord) -> bool:
    """Whether a line of asyncio tells of no task of Orbax or TensorStore."""
    text = record.getMessage()
    return not any(word in text for word in ("orbax", "OCDBT", "zarr", "tensorstore"))


def _is_no_trace_of_orbax(record: logging.LogRecord) -> bool:
    """Whether a line of absl's log has no trace of a thread of Orbax."""
    return record.exc_info is None or "orbax" not in record.pathname


# Some tasks and threads end after the block, whenever Python collects or joins them.
logging.getLogger("asyncio").addFilter(_is_another_s)
logging.getLogger("absl").addFilter(_is_no_trace_of_orbax)


@cache
def quiet_ends() -> None:
    """From now on threads that come back to a closed loop or pool do so quietly.

    After a save that failed TensorStore's threads do, until the program ends: no block
    holds them all.
    """
    tell = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if str(error) not in CLOSED:
            tell(kind, error, trace)

    tell_unraisable = sys.unraisablehook

    def told_unraisable(unraisable: Any) -> None:
        if str(unraisable.exc_value) not in CLOSED:
            tell_unraisable(unraisable)

    sys.excepthook = told
    sys.unraisablehook = told_unraisable


def _drop(*_: Any) -> None:
    pass
