"""JSON objects in files: whole, with their checksum, and of an expected form.

A form says of an object which names it must have, and of which kind each is:

    {"clients": [int], "width": (AtLeastOne, None), "label?": str, "over": {str: list}}

A list is of items of one kind, (kind, None) may be null, a name with "?" may be
missing, the name `str` stands for all names. float takes whole numbers too.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pfljax.runtime import files
from pfljax.runtime.files import FileError

CHECKSUM = "crc32"  # of the rest of the object, as compact JSON in order of names
MEND = "put it back, or run again with another --out"
PLAIN = bool | int | float | str | None  # what is no list and no object
NAMES = {
    PLAIN: "a number, a text, true, false or null",
    dict: "a JSON object",
    list: "a list",
    int: "a whole number",
    float: "a number",
}
NAMES |= {str: "a text", bool: "true or false"}


def write(path: Path, content: Mapping[str, Any], lasting: bool = False) -> None:
    """Writes the object and its checksum, whole or not at all; see `files.whole`.

    Raises:
      TypeError: a name in it is no text, or a value nothing that JSON has.
      ValueError: it holds NaN or an infinity.
    """
    # Encoded once, for checksum and file: of 100,000 clients it takes longest.
    texts = _encoded(content)
    texts[CHECKSUM] = str(zlib.crc32(_line(texts).encode()))
    files.write_text(path, _indented(texts) + "\n", lasting)


def _encoded(value: Any) -> Any:
    """The value, with JSON in the place of each part that holds no object."""
    if isinstance(value, Mapping):
        return {_checked(name): _encoded(part) for name, part in value.items()}
    text = json.dumps(value, allow_nan=False)
    if isinstance(value, list | tuple) and "{" in text:
        return [_encoded(part) for part in value]
    return text


def _checked(name: Any) -> str:
    # A number would be read as a text, which sorts otherwise: another checksum.
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is the name of a value; expected a text")
    return name


def _line(texts: Any) -> str:
    """What was encoded as compact JSON in order of names, of which the checksum is."""
    if isinstance(texts, dict):
        parts = (f"{json.dumps(name)}: {_line(texts[name])}" for name in sorted(texts))
        return "{" + ", ".join(parts) + "}"
    if isinstance(texts, list):
        return "[" + ", ".join(map(_line, texts)) + "]"
    return texts


def _indented(texts: Any, depth: int = 1) -> str:
    """The same with a line for each name of an object; numbers of a list share one.

    `json.dumps(indent=1)` is Python where this is C: seconds for the partition of
    100,000 clients, of which each number would have a line.
    """
    if not texts or isinstance(texts, str):
        return _line(texts)
    if isinstance(texts, dict):
        opening, closing = "{}"
        parts = [
            f"{json.dumps(name)}: {_indented(part, depth + 1)}"
            for name, part in texts.items()
        ]
    else:
        opening, closing = "[]"
        parts = [_indented(part, depth + 1) for part in texts]
    margin = "\n" + depth * " "
    lines = f",{margin}".join(parts)
    return f"{opening}{margin}{lines}{margin[:-1]}{closing}"


def read(path: Path, form: Any = None, edited: bool = False) -> dict[str, Any]:
    """The object in `path` without its checksum; one without any is taken as it is.

    `edited`: by hand, so that the checksum is not asked for.

    Raises:
      FileError: it cannot be read, is not what was written, or not of this form.
    """
    # A pipe would be waited for.
    if path.exists() and not path.is_file():
        raise damaged(path, "it is no file")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise damaged(path, error.strerror or error) from None
    except (ValueError, RecursionError) as error:
        raise damaged(path, error) from None
    wrong = misfit(content, form or {})
    if wrong:
        raise damaged(path, wrong)
    written = content.pop(CHECKSUM, None)
    if not edited and written not in (None, crc(content)):
        raise damaged(
            path, f"it does not match its {CHECKSUM}; remove that if you edit it"
        )
    return content


def damaged(path: Path, why: object) -> FileError:
    """The error for a file of a run that cannot be used."""
    return FileError(f"{path} is missing or damaged ({why}); {MEND}")


def crc(content: Mapping[str, Any]) -> int:
    """CRC-32 of the object, the same before it is written and after it is read."""
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def misfit(value: Any, kind: Any, name: str = "it") -> str | None:
    """What of `value` is not of the kind: what came and was expected; else None."""
    if isinstance(kind, tuple):
        return None if value is None else misfit(value, kind[0], name)
    if isinstance(kind, dict) and isinstance(value, dict):
        return _misfit_of_names(value, kind, name)
    if isinstance(kind, list) and isinstance(value, list):
        if _all_whole(value, kind[0]):
            return None
        for i, item in enumerate(value):
            # Named where it is wrong alone: a manifest has a list a client.
            if misfit(item, kind[0]):
                return misfit(item, kind[0], f"{name}[{i}]")
        return None
    if _is(value, kind):
        return None
    return f"{name} is {_short(value)}; expected {_expected(kind)}"


def _all_whole(items: Iterable[Any], kind: Any) -> bool:
    """Whether items are whole numbers, or lists of them, as their kind wants.

    All at once: one by one, the millions of a partition take seconds.
    """
    types = set(map(type, items))
    if isinstance(kind, list):
        return types <= {list} and _all_whole([*chain.from_iterable(items)], kind[0])
    return kind is int and types <= {int}


def _misfit_of_names(value: Mapping[str, Any], form: Any, name: str) -> str | None:
    if str in form:
        kinds = dict.fromkeys(value, form[str])
    else:
        kinds = {key.removesuffix("?"): kind for key, kind in form.items()}
    missing = [key for key in kinds if key not in value and f"{key}?" not in form]
    if missing:
        return f"{name} lacks {', '.join(missing)}"
    of_names = [misfit(value[key], kinds[key], key) for key in kinds if key in value]
    return next(filter(None, of_names), None)


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, or of a number's range."""
    if isinstance(kind, dict | list):
        return False
    if get_origin(kind) is Annotated:
        plain, *ranges = get_args(kind)
        return _is(value, plain) and all(limits.takes(value) for limits in ranges)
    # Python's bool is an int, but true is no number of clients.
    if isinstance(value, bool) and kind is not PLAIN:
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _expected(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        plain, *ranges = get_args(kind)
        return ", ".join([_expected(plain), *(limits.expected for limits in ranges)])
    if isinstance(kind, dict | list):
        kind = type(kind)
    return NAMES[kind]


def _short(value: Any) -> str:
    """The value as JSON, in few characters."""
    if isinstance(value, dict | list):
        return NAMES[type(value)]
    text = json.dumps(value, default=repr)
    return text if len(text) < 60 else text[:57] + "..."
