"""Default names of folders.

runs/digits-ditto-s0                          all settings have their defaults
runs/digits-ditto-s0-lam=2-rounds=50-9c41d7   two do not; the digest is of both
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from pfljax.core.components import Component
from pfljax.core.requirements import require

LONGEST = 120  # letters of the folder of a label
MOST = 48  # letters of the settings that differ
LETTERS = 6  # of the digest
ODD = re.compile(r"[^A-Za-z0-9.=,+-]+")
ODD_IN_LABEL = re.compile(r"[^A-Za-z0-9.=+-]+")
# "my/file.py:" before the name of a function.
FILE_OF_OWN = re.compile(r"[^\s,:=]+:(?=[A-Za-z_]\w*(?:[:,\s]|$))")
SEED = re.compile(r"s\d+")  # a folder of one seed of a method
# The labels of a sweep that leaves out one part at a time: "full", "without momentum".
FULL, WITHOUT = "full", "without"
EXACT = 2**53  # up to here a whole number is the float that it equals


def special(plain: str, differing: Mapping[str, Any]) -> str:
    """`plain`, followed by the settings that differ from the defaults.

    1 and 1.0 are the same value, as they are the same run.
    """
    if not differing:
        return plain
    words = [f"{name}={_word(value)}" for name, value in differing.items()]
    readable = ODD.sub("_", "-".join(words))[:MOST].rstrip("-_=,.")
    exact = {name: _exact(value) for name, value in differing.items()}
    return f"{plain}-{readable}-{_digest(exact)}"


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LETTERS]


def comparison(folders: Sequence[Path], targets: Sequence[float] = ()) -> str:
    """The folder of a comparison: the names of two runs, and a digest of all."""
    called = list(dict.fromkeys(map(_folder_name, folders)))
    shown = called[:2]
    if len(called) > len(shown):
        shown.append(f"and-{len(called) - len(shown)}-more")
    # By their paths: folders of two studies may have one name.
    paths = [str(folder.absolute()) for folder in folders]
    readable = ODD.sub("_", "-".join(shown))[: 2 * MOST].rstrip("-_=,.")
    return f"runs/report-{readable}-{_digest([paths, list(targets)])}"


def _folder_name(folder: Path) -> str:
    """The name of a run folder, with the method's before a seed: "ditto-s0"."""
    name = folder.absolute().name
    return f"{folder.absolute().parent.name}-{name}" if SEED.fullmatch(name) else name


def label_folder(label: str) -> str:
    """The name of the folder of the runs with this label."""
    name = ODD_IN_LABEL.sub("-", label)
    # "." and ".." name other folders.
    expected = "letters or digits in it, since it names a folder"
    require("label", label, bool(name.strip(".")), expected)
    return name if len(name) <= LONGEST else f"{name[:MOST]}-{_digest(label)}"


def value_text(value: Any) -> str:
    """A swept value, short where that is exact: 0.10 and 0.1 are one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_exact = is_number and float(f"{value:g}") == value
    return f"{value:g}" if is_exact else without_files(str(value))


def without_files(text: str) -> str:
    """The text with the names of one's own functions alone: "a.py:mine" is "mine"."""
    return FILE_OF_OWN.sub("", text)


def short(choice: str) -> str:
    """A component as text, with its files named without their folders."""
    return ",".join(map(_file_name, without_files(choice).split(",")))


def _file_name(option: str) -> str:
    """An option "name:path=/a/b.npz" without the folder of its file."""
    name, equals, value = option.partition("=")
    return f"{name}{equals}{PurePath(value).name}" if "/" in value else option


def _word(value: Any) -> str:
    """A value in few letters."""
    if isinstance(value, Component):
        pairs = [f"{name}={_word(option)}" for name, option in value.args]
        return ":".join(filter(None, [value.short_name, ",".join(pairs)]))
    if isinstance(value, tuple):
        return "+".join(map(_word, value))
    if isinstance(value, str) and "/" in value:
        return PurePath(value).name
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if is_number else str(value)


def _exact(value: Any) -> Any:
    """A value as JSON holds it, with all digits; equal numbers are equal."""
    if isinstance(value, Component):
        return [value.name, {name: _exact(option) for name, option in value.args}]
    if isinstance(value, tuple):
        return [_exact(part) for part in value]
    if type(value) is int and abs(value) < EXACT:
        return float(value)
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
