"""Functions of one's own: "path/to/file.py:function" or "package.module:function".

A relative path begins at the working directory, where modules are found as well, and
files find the files beside them. A process imports each file once.
"""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pfljax.core import annotations, requirements

HOLDS = (*annotations.SCALARS, tuple)  # the types that a text of options can have
EXPECTED = "expected path/to/file.py:function or package.module:function"


def load(
    name: str, takes: Sequence[str] | None = None, also: Collection[str] = ()
) -> Callable[..., Any]:
    """The function of a name, such as "my/file.py:mine".

    Args:
      name: the file or module, and the function.
      takes: the positional arguments with which the function will be called. All
        others are options: keyword-only, with defaults that a config holds. None leaves
        the arguments unchecked.
      also: names of further arguments that are no options.

    Raises:
      ValueError: there is no such file or function, the file cannot be imported, or the
        function takes other arguments.
    """
    where, _, called = name.rpartition(":")
    known = vars(_import(where))
    if not callable(known.get(called)):
        functions = {key: f for key, f in known.items() if inspect.isfunction(f)}
        said = requirements.unknown("function", functions, called)
        raise ValueError(f"{where}: {said}")
    if takes is not None:
        _check_call(name, known[called], takes, also)
    return known[called]


def crc(function: Callable) -> int:
    """CRC-32 of the file of a function; 0 for one of a notebook."""
    file = inspect.getsourcefile(inspect.unwrap(function)) or ""
    return zlib.crc32(Path(file).read_bytes()) if os.path.isfile(file) else 0


def _import(where: str) -> ModuleType:
    """The module of a file or of a name."""
    is_file = where.endswith(".py")
    key = os.path.abspath(where) if is_file else where
    if key in sys.modules:
        return sys.modules[key]
    if is_file and not os.path.isfile(key):
        raise ValueError(f"there is no file {where} in {os.getcwd()}; {EXPECTED}")
    folder = os.path.dirname(key) if is_file else os.getcwd()
    # Last, so that they hide no module that is installed.
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return _run_file(key) if is_file else importlib.import_module(key)
    except Exception as error:  # a user's file may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{key}.".startswith(f"{missing}."):
            raise ValueError(f"there is no module {where!r}; {EXPECTED}") from None
        said = f"{where} cannot be imported: {_locate(error, key)}"
        raise ValueError(said) from error


def _run_file(path: str) -> ModuleType:
    """The module of a file, which has the path as its name."""
    spec: Any = importlib.util.spec_from_file_location(path, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path] = module  # dataclasses look for their modules there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path]
        raise
    return module


def _locate(error: BaseException, path: str) -> str:
    """FILE:LINE: what went wrong, by the last line of the file that was reached."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        # Bytes that are no text at all have neither a name nor a line.
        where = f"{error.filename}:{error.lineno}" if error.filename else path
        return f"{where}: {kind}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    machinery = ("<frozen importlib", __file__, importlib.__file__)
    own = [frame for frame in frames if not frame.filename.startswith(machinery)]
    lines = [frame.lineno for frame in own if frame.filename == own[0].filename]
    where = f"{own[0].filename}:{lines[-1]}" if own else path
    # JAX explains its errors in paragraphs; the first line says what came.
    message = str(error).partition("\n")[0]
    return f"{where}: {kind}: {message}" if message else f"{where}: {kind}"


def _check_call(
    name: str, function: Callable, takes: Sequence[str], also: Collection[str]
) -> None:
    """Refuses another signature, and options that no config could hold."""
    where, _, called = name.rpartition(":")
    code = getattr(inspect.unwrap(function), "__code__", None)
    owner = f"{where}:{code.co_firstlineno}: {called}" if code else name
    signature = inspect.signature(function)
    each = signature.parameters.items()
    options = {key: p.default for key, p in each if p.kind is p.KEYWORD_ONLY}
    others = [key for key, p in each if p.kind <= p.POSITIONAL_OR_KEYWORD]
    others = others[len(takes) :]
    try:
        signature.bind(*takes, **dict.fromkeys(others), **options)
    except TypeError:
        others.append("")
    if {*others} - {*also}:
        expected = ", ".join([*takes, "*, OPTIONS"])
        raise ValueError(
            f"{owner} takes {signature}; expected ({expected}), where options stand "
            "behind a *"
        )
    for key, default in options.items():
        if default is not inspect.Parameter.empty and not isinstance(default, HOLDS):
            raise ValueError(
                f"{owner}: the option {key!r} has the default {default!r}, which "
                "config.json cannot hold; expected a number, text, True, False, None, "
                "or several in parentheses"
            )
