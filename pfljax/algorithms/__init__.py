"""The methods: a folder a family, a file a method; file, function and key are one word.

A family is what a client keeps. `PFLJAX_METHODS`, an environment variable, names
folders with methods of one's own. Folders in them are families, new or of the names
here. Files are imported as `pfljax.algorithms.NAME` or `pfljax.algorithms.FAMILY.NAME`.
Files and folders with other code have names that begin with _.
"""

import importlib
import inspect
import os
import pkgutil
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pfljax.core import annotations, factories, requirements

OWN = Path(__file__).parent


class Source(NamedTuple):
    """Where a method is."""

    module: str  # pfljax.algorithms.FAMILY.NAME, or pfljax.algorithms.NAME
    file: Path


def methods() -> dict[str, Callable]:
    """Every method by its name.

    Raises:
      ValueError: a folder of `PFLJAX_METHODS` is none, two files are one method, or a
        file cannot be imported or has no such function.
    """
    return {name: _function(name, source) for name, source in _sources().items()}


def importable() -> tuple[dict[str, Callable], list[str]]:
    """The methods whose files are sound, and what is wrong with each of the others.

    Raises:
      ValueError: a folder of `PFLJAX_METHODS` is none, or two files are one method.
    """
    sound = {}
    errors = []
    for name, source in _sources().items():
        try:
            sound[name] = _function(name, source)
        except ValueError as error:
            errors.append(str(error))
    return sound, errors


def method(name: str) -> Callable:
    """The method of this name.

    Raises:
      ValueError: it is unknown (the message lists the known ones), two files are one
        method, or its file is broken.
    """
    sources = _sources()
    if name not in sources and "PFLJAX_METHODS" not in os.environ:
        said = requirements.unknown("algorithm", sources, name)
        raise ValueError(f"{said} (your own methods need PFLJAX_METHODS=FOLDER)")
    return _function(name, requirements.find("algorithm", sources, name))


def find_file(name: str) -> Path:
    """The file of the method of this name.

    Raises:
      ValueError: it is unknown, or two files are one method.
    """
    return requirements.find("algorithm", _sources(), name).file


def families() -> dict[str, str]:
    """The family of every method; "" for one that lies in no folder of a family."""
    family = {}
    for name, source in _sources().items():
        folders = source.module.split(".")[2:-1]
        family[name] = ".".join(folders)
    return family


def _sources() -> dict[str, Source]:
    """Where each method is, by its name and in order; none is imported."""
    _extend_path()
    sources: dict[str, Source] = {}
    for source in _files():
        name = source.file.stem
        # Python would import the first one, and never tell of the other.
        if name in sources:
            raise ValueError(
                f"{source.file} and {sources[name].file} are both the method {name!r}; "
                "give one of them, and its function, another name"
            )
        sources[name] = source
    return dict(sorted(sources.items()))


def _extend_path() -> None:
    """Makes the folders of `PFLJAX_METHODS` folders of this package."""
    # Read at every call: tests and notebooks set it after the import.
    variable = os.environ.get("PFLJAX_METHODS", "")
    for folder in filter(None, variable.split(os.pathsep)):
        if not os.path.isdir(folder):
            raise ValueError(f"PFLJAX_METHODS has {folder!r}, which is no folder")
        if not any(os.path.samefile(folder, known) for known in __path__):
            __path__.append(folder)
    # A family is a package, with a path of its own: as this package's, it then has the
    # families of that name in the other folders.
    for name in _families(OWN):
        family = importlib.import_module(f"{__name__}.{name}")
        family.__path__ = pkgutil.extend_path(family.__path__, family.__name__)


def _files() -> Iterator[Source]:
    """The files in the folders of this package and in their families."""
    # A folder at a time: all at once, pkgutil gives the first file of a name alone.
    for folder in map(Path, __path__):
        yield from _own_files() if folder == OWN else _files_below(folder)


@cache
def _own_files() -> list[Source]:
    """The files of pfljax itself, which stay while a process runs."""
    return [*_files_below(OWN)]


def _files_below(folder: Path) -> Iterator[Source]:
    yield from _in_folder(folder, __name__)
    for family in _families(folder):
        yield from _in_folder(folder / family, f"{__name__}.{family}")


def _families(folder: Path) -> list[str]:
    """The names of the families in a folder; they need no `__init__.py`."""
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    return sorted(
        name for name in names if name.isidentifier() and not name.startswith("_")
    )


def _in_folder(folder: Path, package: str) -> Iterator[Source]:
    """The files of one folder, found without importing anything."""
    for _, name, is_package in pkgutil.iter_modules([str(folder)]):
        # The name of a file with other code begins with _.
        if not is_package and not name.startswith("_"):
            yield Source(f"{package}.{name}", folder / f"{name}.py")


def _function(name: str, source: Source) -> Callable:
    """The function of a method's file."""
    # Python would say that there is no such module.
    if not source.file.is_file():
        raise ValueError(
            f"the method {name!r} cannot be imported: {source.file} is no file; "
            "expected Python code; remove it from the folders of PFLJAX_METHODS"
        )
    try:
        module = importlib.import_module(source.module)
    except Exception as error:  # a user's file may raise anything
        raise ValueError(
            f"the method {name!r} cannot be imported: {locate(error, source.file)}; "
            "mend its file, or take it out of the folders of PFLJAX_METHODS"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(
            f"{source.file} has no function {name!r}, which makes the method; the name "
            "of a file with other code begins with _"
        )
    _check_call(name, source, function)
    _check_options(name, source.file, function)
    return function


def _check_call(name: str, source: Source, function: Callable) -> None:
    """Refuses a function that does not take (task, local) and options by name."""
    signature = inspect.signature(function)
    options = {
        parameter.name: parameter.default
        for parameter in signature.parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    try:
        signature.bind("task", "local", **options)
    except TypeError:
        code = getattr(inspect.unwrap(function), "__code__", None)
        line = f":{code.co_firstlineno}" if code else ""
        raise ValueError(
            f"{source.file}{line}: {name}{signature} makes no method; expected "
            f"{name}(task, local), and its options behind a *"
        ) from None


def _check_options(name: str, file: Path, function: Callable) -> None:
    """Refuses options that no command line and no config could set."""
    positional = [
        parameter
        for parameter in annotations.parameters(function).values()
        if parameter.kind
        in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    for option in positional[2:]:  # behind task and local
        raise ValueError(
            f"{file}: the option {option.name!r} of {name!r} is positional; make it "
            f"keyword-only: def {name}(task, local, *, {option.name}=...)"
        )
    for option in factories.options(function).values():
        default = option.default
        if default is not option.empty and not isinstance(default, annotations.SCALARS):
            raise ValueError(
                f"{file}: the option {option.name!r} of {name!r} has the default "
                f"{default!r}, which config.json cannot hold; expected a number, text, "
                "True, False or None"
            )


def locate(error: BaseException, file: Path) -> str:
    """FILE:LINE: what went wrong, by the last line of the file that was reached."""
    kind = type(error).__name__
    # JAX explains its errors in paragraphs; the first line says what came.
    message = str(error).partition("\n")[0]
    if isinstance(error, SyntaxError):
        # Bytes that are no text at all have neither a name nor a line.
        where = f"{error.filename}:{error.lineno}" if error.filename else str(file)
        return f"{where}: {kind}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    # Python knows files by their absolute paths; PFLJAX_METHODS may have others.
    path = os.path.abspath(file)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    line = f"{file}:{lines[-1]}" if lines else str(file)
    return f"{line}: {kind}: {message}" if message else f"{line}: {kind}"
