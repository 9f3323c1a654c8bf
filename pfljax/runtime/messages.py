"""What processes send each other: JSON and arrays, never code.

A message is the length of its JSON, the JSON, and the arrays as .npy files one after
another. In the JSON an array is {"array": place} and a dict {"items": {...}}. An error
goes by the name of its kind, of the table below.
"""

import io
import json
import struct
from typing import Any

import numpy as np

from pfljax.runtime.files import CheckpointError, FileError, FolderError, StoreError

LENGTH = struct.Struct("<Q")  # of the JSON, in bytes
PLAIN = (bool, int, float, str)
KINDS = {
    kind.__name__: kind
    for kind in (
        ValueError,
        TypeError,
        RuntimeError,
        OSError,
        FileNotFoundError,
        PermissionError,
        FileError,
        FolderError,
        CheckpointError,
        StoreError,
    )
}


def pack(value: Any) -> bytes:
    """A value of JSON, with str keys, lists and arrays of numbers, as a message.

    Raises:
      TypeError: it holds anything else.
    """
    arrays: list[np.ndarray] = []
    return _message({"value": _written(value, arrays)}, arrays)


def pack_error(error: Exception) -> bytes:
    """An error as a message: the kind nearest to its own, and its text."""
    names = [kind.__name__ for kind in type(error).__mro__]
    kind = next((name for name in names if name in KINDS), RuntimeError.__name__)
    return _message({"error": kind, "text": str(error)}, [])


def unpack(message: bytes) -> Any:
    """The value of a message.

    Raises:
      Exception: the error that the message is of.
      ValueError: it is none of `pack`'s and `pack_error`'s.
    """
    try:
        content, rest = _content(message)
        if "value" in content:
            return _read(content["value"], _arrays(rest))
        error = KINDS[content["error"]](str(content["text"]))
    except (ValueError, TypeError, LookupError, AttributeError, struct.error) as damage:
        raise ValueError(
            f"another process sent what is no message of pfljax ({damage}); start the "
            "same version of it on all"
        ) from None
    raise error


def _message(content: Any, arrays: list[np.ndarray]) -> bytes:
    text = json.dumps(content).encode()
    buffer = io.BytesIO()
    buffer.write(LENGTH.pack(len(text)))
    buffer.write(text)
    for array in arrays:
        np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _content(message: bytes) -> tuple[dict[str, Any], bytes]:
    """(the JSON, the bytes behind it)."""
    (length,) = LENGTH.unpack_from(message)
    end = LENGTH.size + length
    return json.loads(message[LENGTH.size : end]), message[end:]


def _arrays(rest: bytes) -> list[np.ndarray]:
    buffer = io.BytesIO(rest)
    arrays = []
    while buffer.tell() < len(rest):
        arrays.append(np.lib.format.read_array(buffer, allow_pickle=False))
    return arrays


def _written(value: Any, arrays: list[np.ndarray]) -> Any:
    """The value as JSON; its arrays are appended to `arrays`."""
    # The very types: a subclass such as np.float64 would come back as another.
    if value is None or type(value) in PLAIN:
        return value
    if type(value) is list:
        return [_written(item, arrays) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {"items": {key: _written(item, arrays) for key, item in value.items()}}
    if type(value) is np.ndarray and value.dtype.kind in "biufU":
        arrays.append(value)
        return {"array": len(arrays) - 1}
    raise TypeError(
        f"{type(value).__name__} cannot be sent to the other processes; expected "
        "values of JSON, or arrays of numbers"
    )


def _read(written: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(written, list):
        return [_read(item, arrays) for item in written]
    if not isinstance(written, dict):
        return written
    if "array" in written:
        return arrays[written["array"]]
    return {key: _read(item, arrays) for key, item in written["items"].items()}
