"""How a program ends that C++ aborts: in one line, as other errors do.

XLA and the runtime between processes abort where they find no memory or lose another
process. Nothing is raised then, and no Python may run: the thread may have no memory,
or another thread may hold Python's lock. So the line is written by a signal handler of
a few instructions of the processor.
"""

import ctypes
import mmap
import os
import platform
import signal
import struct
import sys
from typing import Any

from pfljax.runtime import interrupts

# The handler for Linux on x86-64: write(2, line, its length), then exit_group(2). Each
# part is opcodes and the number or the address that they take.
END = struct.Struct(
    "< 5s 5s"  # number and first argument of `write`
    "2s Q 1s I"  # its line and length
    "2s"  # the call
    "5s 5s 2s"  # number and argument of `exit_group`; the call
)
LOAD_CALL = b"\xb8"  # into eax, four bytes: which call of the system
LOAD_FIRST = b"\xbf"  # into edi, four bytes: its first argument
LOAD_SECOND = b"\x48\xbe"  # into rsi, eight bytes
LOAD_THIRD = b"\xba"  # into edx, four bytes
CALL = b"\x0f\x05"
WRITE, EXIT_GROUP = 1, 231
STDERR = EXIT_CODE = 2

_handlers: list[Any] = []  # C calls them: they must never be freed


def tell(line: str) -> None:
    """From now on an abort ends with this line and exit code 2.

    C++ aborts where it finds no memory or loses another process: nothing is raised.
    """
    if os.name != "posix":
        return
    handler = _machine_code(line)
    if handler is None:  # Python tells, if it has memory and its lock
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(
            lambda _: interrupts.end(line, EXIT_CODE)
        )
    _handlers.append(handler)
    # Python's own handlers run between two of its steps, which an abort never reaches.
    c_signal = ctypes.CDLL(None).signal
    c_signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    c_signal.restype = ctypes.c_void_p
    c_signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))


def _machine_code(line: str) -> Any:
    """`interrupts.end` in the processor's instructions; None for others.

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
    end = END.pack(
        LOAD_CALL + _number(WRITE),
        LOAD_FIRST + _number(STDERR),
        LOAD_SECOND,
        address,
        LOAD_THIRD,
        len(text),
        CALL,
        LOAD_CALL + _number(EXIT_GROUP),
        LOAD_FIRST + _number(EXIT_CODE),
        CALL,
    )
    code.raw = end + text
    return code


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")
