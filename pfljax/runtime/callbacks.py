"""What a callback of a compiled program raises, told with its file and line.

JAX raises it where the results are read. Of several devices, one whose callback raised
leaves the program; the others wait for it in their next sum, and nothing is ever
raised. So it is told in the callback's own thread, by whichever comes first: the
callback itself, where pfljax saw it traced (`callback_results`), or JAX's log. A
command ends there and then (`errors.in_one_line`, by `heard`), before `told` gets to
act. A script in Python gets an exception, or ends where none can arrive (`told`).
"""

import contextlib
import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator

from pfljax.runtime import interrupts

LOGS = ("jax._src.callback", "jax._src.debugging")
OF_OTHERS = ("site-packages", f"jax{os.sep}_src", "callback_results.py")
# What JAX says of results that do not fit, which it does not log.
MISFITS = ("Incorrect output", "Mismatched number of outputs")
PATIENCE = 30.0  # seconds until what was raised must have arrived

_listeners: list[Callable[[BaseException], None]] = []
_ignoring: set[int] = set()  # threads whose callbacks are no program's


class MisfitError(ValueError):
    """A callback returned another form than its program was told of."""


class _Log(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            tell(error)


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """What callbacks raise in this thread meanwhile reaches who called them."""
    thread = threading.get_ident()
    known = thread in _ignoring
    _ignoring.add(thread)
    try:
        yield
    finally:
        if not known:
            _ignoring.discard(thread)


def tell(error: BaseException, where: str | None = None) -> None:
    """Tells everybody who listens that a callback raised this; in its thread.

    `where` is FILE:LINE of the callback, for an error that was raised by others' code.
    """
    if threading.get_ident() in _ignoring:
        return
    with contextlib.suppress(AttributeError, TypeError):
        error.__dict__.setdefault("where", where)
    # The newest comes last: a command began to listen first, and ends here.
    for listener in list(_listeners):
        listener(error)


@contextlib.contextmanager
def heard(listener: Callable[[BaseException], None]) -> Iterator[None]:
    """Calls `listener` with what a callback raises, at once and in its thread."""
    log = _Log()
    for name in LOGS:
        logging.getLogger(name).addHandler(log)
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
        for name in LOGS:
            logging.getLogger(name).removeHandler(log)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Around programs that may hold callbacks: their failures name file and line.

    Where the other devices wait for one that failed, nothing can free them: the process
    ends with the line after half a minute.

    Raises:
      ValueError: a callback raised something.
      KeyboardInterrupt: it raised this.
    """
    failures: list[BaseException] = []
    ends: list[threading.Timer] = []

    def note(error: BaseException) -> None:
        failures.append(error)
        if len(failures) > 1:
            return
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
    if not failures:
        return
    if isinstance(failures[0], KeyboardInterrupt):
        raise KeyboardInterrupt from raised
    raise ValueError(sentence(failures[0])) from raised


def _misfit(error: Exception) -> str | None:
    """What JAX says of a callback whose results do not fit; None of other errors."""
    lines = str(error).strip().splitlines() or [""]
    said = lines[-1].removeprefix("RuntimeError: ")
    if not said.startswith(MISFITS):
        return None
    return f"a callback of the program does not return what it says ({said}); mend it"


def sentence(error: BaseException) -> str:
    """Where a callback raised this, and what to do."""
    place = _place(error)
    where = f" at {place}" if place else ""
    kind = type(error).__name__
    said = _first_line(error)
    raised = f"{kind}: {said}" if said else kind
    return f"a callback of the program failed{where}: {raised}; mend its file"


def _place(error: BaseException) -> str | None:
    """FILE:LINE of the innermost code that is the user's."""
    raised = innermost(traceback.extract_tb(error.__traceback__))
    return raised or getattr(error, "where", None)


def innermost(frames: Iterable[traceback.FrameSummary]) -> str | None:
    """FILE:LINE of the last of the frames that is the user's."""
    for frame in reversed([*frames]):
        if not is_of_others(frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return None


def is_of_others(file: str) -> bool:
    """Whether the file is of an installed package, or of what holds callbacks."""
    return any(part in file for part in OF_OTHERS)


def _first_line(error: BaseException) -> str:
    # A class of the user's may not even be able to say what it is.
    try:
        return str(error).partition("\n")[0]
    except Exception:
        return ""
