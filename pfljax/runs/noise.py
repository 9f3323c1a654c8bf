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
from typing import Any

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


# Some tasks end after the block, whenever Python collects them.
logging.getLogger("asyncio").addFilter(_is_another_s)


def _drop(*_: Any) -> None:
    pass
