"""Orbax, without what it prints of a damaged checkpoint.

Of the tasks that read one, Orbax awaits only the first that fails. The others complain
later, and from other threads. `pfljax.runs.checkpoint` says itself what is damaged.
"""

import logging
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any


@cache
def import_orbax() -> Any:
    """The module of Orbax's new API, which takes long to import."""
    from orbax.checkpoint import v1

    logging.getLogger("absl").addFilter(_is_shown)
    logging.getLogger("asyncio").addFilter(_is_shown)
    sys.unraisablehook = partial(_show_unraisable, sys.unraisablehook)
    return v1


def _is_shown(record: logging.LogRecord) -> bool:
    if record.name == "asyncio":
        return "tensorstore" not in record.getMessage()
    return "orbax" not in record.pathname


def _show_unraisable(show: Callable[[Any], Any], problem: Any) -> None:
    code = getattr(problem.object, "cr_code", None)
    is_task = code is not None and "orbax" in code.co_filename
    if not is_task and str(problem.exc_value) != "Event loop is closed":
        show(problem)
