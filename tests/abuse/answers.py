"""The class of an answer to a wrong input.

    good       one line that names what is wrong, exit code 2
    harmless   accepted, and rightly so: the table of inputs has the reason
    unclear    one line that does not name it, or in the words of Python
    traceback  a raw traceback, or an abort
    silent     accepted, though it is wrong
    hang       no answer within the time

The last three are faults.
"""

import re
from typing import NamedTuple

CLASSES = ("good", "harmless", "unclear", "traceback", "silent", "hang")
FAULTS = CLASSES[3:]
# What Python, NumPy and JAX say of values, which tells a user little.
JARGON = (
    r"NoneType|object (is|has|of)|invalid literal|cannot convert|could not convert|"
    r"unsupported operand|not supported between|unexpected keyword|unhashable|"
    r"not iterable|positional argument|out of bounds for|too large to convert|"
    r"Errno|argument path|ufunc|inhomogeneous|0x[0-9a-f]{6}|not subscriptable|"
    r"allow_pickle|recursion depth"
)
# What makes up for it: what to do, or which file it was.
ADVICE = r"expected|choose|give |mend|remove|make room|put back|delete|cannot be read"


class Answer(NamedTuple):
    """A class, and the line that shows it."""

    kind: str
    line: str


def classify(code: int | None, said: str, names: tuple[str, ...], may: str) -> Answer:
    """The class of what a command said on stderr, and of its exit code, None for none.

    `names` are words of which its line must have one. `may` is why the input may be
    accepted, empty if it must not.
    """
    lines = [line for line in said.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if code is None:
        return Answer("hang", last)
    if "Traceback (most recent" in said or code < 0 or code in (134, 139):
        return Answer("traceback", f"{code}: {last}")
    if code == 0:
        return Answer("harmless", may) if may else Answer("silent", last)
    if code != 2:
        return Answer("unclear", f"exit code {code}: {last}")
    if not last.startswith("pfljax: "):
        return Answer("unclear", f"not one line: {last}")
    if re.search(JARGON, last) and not re.search(ADVICE, last):
        return Answer("unclear", last)
    if names and not any(name in last for name in names):
        return Answer("unclear", f"without {' or '.join(names)}: {last}")
    return Answer("good", last)
