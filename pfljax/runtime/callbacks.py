"""What a callback of a compiled program raises, told with its file and line.

JAX raises it where the results are read. Of several devices, one whose callback raised
leaves the program; the others wait for it in their next sum until XLA aborts, and
nothing is ever raised. But JAX logs what was raised, in the callback's own thread. A
command ends there and then (`errors.in_one_line`, by `heard`); a script in Python gets
an exception, or ends where none can arrive (`told`).
"""

import contextlib
import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator

from pfljax.runtime import interrupts

LOGS = ("jax._src.callback", "jax._src.debugging")
OF_JAX = (f"{os.sep}jax{os.sep}_src{os.sep}", f"{os.sep}jaxlib{os.sep}")
PATIENCE = 30.0  # seconds until what was raised must have arrived; XLA takes a minute


class _Listener(logging.Handler):
    def __init__(self, tell: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, KeyboardInterrupt):
            self._tell(error)


@contextlib.contextmanager
def heard(tell: Callable[[BaseException], None]) -> Iterator[None]:
    """Calls `tell` with what a callback raises, at once and in its thread."""
    listener = _Listener(tell)
    for name in LOGS:
        logging.getLogger(name).addHandler(listener)
    try:
        yield
    finally:
        for name in LOGS:
            logging.getLogger(name).removeHandler(listener)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Around programs that may hold callbacks: their failures name file and line.

    Where the other devices wait for one that failed, nothing can free them: the process
    ends with the line after half a minute.

    Raises:
      ValueError: a callback raised something.
    """
    failures: list[BaseException] = []
    ends: list[threading.Timer] = []

    def note(error: BaseException) -> None:
        failures.append(error)
        line = f"pfljax: {sentence(error)}; the other devices wait for its result"
        end = threading.Timer(PATIENCE, interrupts.end, (line, 2))
        end.daemon = True
        end.start()
        ends.append(end)

    raised: Exception | None = None
    try:
        with heard(note):
            yield
    except Exception as error:  # whatever it is, it followed from the callback's
        if failures:
            raised = error
        elif (misfit := _misfit(error)) is not None:
            raise ValueError(misfit) from error
        else:
            raise
    finally:
        for end in ends:
            end.cancel()
    if failures:
        raise ValueError(sentence(failures[0])) from raised


class MisfitError(ValueError):
    """A callback returned another form than its program was told of."""

    def __init__(self, said: str, where: str | None) -> None:
        super().__init__(said)
        self.where = where  # FILE:LINE of the callback


def _misfit(error: Exception) -> str | None:
    """What a callback returned that does not fit; JAX does not log that.

    None for other errors.
    """
    first, *others = str(error).strip().splitlines() or [""]
    if "callback" not in first.lower() or not others:
        return None
    said = others[-1].removeprefix("RuntimeError: ")
    return f"a callback of the program does not return what it says ({said}); mend it"


def sentence(error: BaseException) -> str:
    """Where a callback raised this, and what to do."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename for part in OF_JAX)]
    place = f"{own[-1].filename}:{own[-1].lineno}" if own else None
    if isinstance(error, MisfitError):
        place = error.where
    where = f" at {place}" if place else ""
    said = str(error).partition("\n")[0]
    kind = type(error).__name__
    raised = f"{kind}: {said}" if said else kind
    return f"a callback of the program failed{where}: {raised}; mend its file"
