"""How a program ends early: in one line, without a traceback.

A user's mistake has exit code 2, Ctrl-C 130.
"""

import contextlib
import ctypes
import errno
import logging
import mmap
import os
import platform
import re
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pfljax.runtime import files, interrupts

KINDS = (ValueError, RuntimeError, OSError, MemoryError)
NO_READER = 141  # the exit code of a program whose output nobody reads, 128 + SIGPIPE
# Whoever reads is told so as well: the other refusals are of a file, which is named.
SCARCE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE)
LESS_MEMORY = "choose a smaller model, cohort or width, or --store disk"

# write(2, line, its length); exit_group(2) for Linux on x86-64: the opcodes, and the
# address and the length between them.
END = struct.Struct("<10s2sQ1sI2s10s2s")
SYSCALL = b"\x0f\x05"
WRITE = (bytes.fromhex("b801000000 bf02000000"), b"\x48\xbe")  # eax = 1, edi = 2; rsi
EXIT = (SYSCALL, bytes.fromhex("b8e7000000 bf02000000"), SYSCALL)  # eax = 231, edi = 2
# A callback of a program fails far from Python: its trace arrives as text.
FRAME = re.compile(r'^ *File "(?P<file>.*)", line (?P<line>\d+)')
OF_JAX = ("/jax/_src/", "/jaxlib/")
CALLBACK_LOGS = ("jax._src.callback", "jax._src.debugging")  # of that trace as well
NO = ("", "0")  # of an environment variable that says yes or no

_abort_handlers: list[Any] = []  # C calls them: they must never be freed


def tracing() -> bool:
    """Whether PFLJAX_TRACE, an environment variable, asks for tracebacks."""
    return os.environ.get("PFLJAX_TRACE", "") not in NO


@contextlib.contextmanager
def in_one_line(program: str | None = None) -> Iterator[None]:
    """Ends the program on an error of these kinds; PFLJAX_TRACE shows where it was.

    Around a block, or as a decorator. `program` stands before the message; by default
    it is the name of the script. Where nobody reads on, as after `| head`, it ends
    without a word.
    """
    if not tracing():
        for name in CALLBACK_LOGS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with _flushed():
            yield
    except BrokenPipeError:
        _discard_output()
        sys.exit(NO_READER)
    except KINDS as error:
        if tracing():
            raise
        line = f"{program or Path(sys.argv[0]).name}: {sentence(error)}"
        if _callback_failure(error):
            _discard_output()
            # At exit JAX would wait for the callback, and tell of it twice more.
            interrupts.end(line, 2)
        print(line, file=sys.stderr)
        if isinstance(error, OSError):
            _discard_output()
        sys.exit(2)


@contextlib.contextmanager
def _flushed() -> Iterator[None]:
    """Writes out at the end what was printed, while errors are still told."""
    try:
        yield
    except SystemExit:
        _flush()
        raise
    _flush()


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _discard_output() -> None:
    """Leads stdout to nowhere where it cannot be written to.

    Python flushes it once more at exit, and would tell of the same error in a trace.
    """
    try:
        _flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def _callback_failure(error: BaseException) -> str | None:
    """FILE:LINE: what was raised in a callback of a program; None for other errors."""
    lines = str(error).splitlines()
    if not lines or "callback" not in lines[0].lower():
        return None
    source = None
    raised: list[str] = []
    for number, text in enumerate(lines):
        frame = FRAME.match(text)
        if frame and not any(part in frame["file"] for part in OF_JAX):
            source = f"{frame['file']}:{frame['line']}"
            raised = [line for line in lines[number:] if not line.startswith(" ")]
    if source is None:
        return None
    return ": ".join([source, *raised[:1]])


def sentence(error: BaseException) -> str:
    """What an error says, in one line, and what to do where the system says it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if callback := _callback_failure(error):
        return f"a callback of the program failed at {callback}; mend its file"
    if isinstance(error, OSError) and error.errno in SCARCE:
        return f"{lines[0]}; {files.MEND[error.errno]}"
    if isinstance(error, MemoryError) and not str(error):
        return f"out of memory; {LESS_MEMORY}"
    if lines[0].startswith("RESOURCE_EXHAUSTED"):
        return f"{lines[0]}; {LESS_MEMORY}"
    return lines[0]


@contextlib.contextmanager
def stopped_at_once() -> Iterator[None]:
    """Around what resumes, a block or a function: Ctrl-C ends the program at once."""
    # A handler, not KeyboardInterrupt, which JAX's callbacks would swallow.
    before = signal.signal(signal.SIGINT, interrupts.leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def tell_abort(line: str) -> None:
    """From now on an abort ends with this line and exit code 2.

    C++ aborts where it finds no memory or loses another process: nothing is raised.
    """
    if os.name != "posix":
        return
    handler = _machine_code(line)
    if handler is None:  # Python tells, if it has memory and its lock
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(
            lambda _: interrupts.end(line, 2)
        )
    _abort_handlers.append(handler)
    # Python's own handlers run between two of its steps, which an abort never reaches.
    c_signal = ctypes.CDLL(None).signal
    c_signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    c_signal.restype = ctypes.c_void_p
    c_signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))


def _machine_code(line: str) -> Any:
    """`interrupts.end(line, 2)` in the processor's instructions; None for others.

    A thread that aborts for want of memory, or while another holds Python's lock,
    cannot run Python. No function of the C library alone does both calls.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    text = f"{line}\n".encode()
    try:
        page = mmap.mmap(
            -1,
            END.size + len(text),
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC,
        )
    except OSError:  # a hardened system lets nobody write what is run
        return None
    code = (ctypes.c_char * len(page)).from_buffer(page)
    address = ctypes.addressof(code) + END.size
    code.raw = END.pack(*WRITE, address, b"\xba", len(text), *EXIT) + text
    return code
