"""What a factory's docstring says: of itself, and of each option a line.

Options stand under "Args:", as Google's style has them:

    Args:
      lam: the pull of v_k to w; a second
        line goes on.
"""

import inspect
import re
from collections.abc import Callable

OPTION = re.compile(r"(\w+): (.*)")


def options_told(factory: Callable) -> dict[str, str]:
    """What the docstring says of each option, by name, in one line each."""
    lines = (inspect.getdoc(factory) or "").splitlines()
    if "Args:" not in lines:
        return {}
    told: dict[str, str] = {}
    depth = 0
    name = None
    for line in lines[lines.index("Args:") + 1 :]:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if not text or not indent:
            break
        begun = OPTION.match(text)
        if begun and (name is None or indent <= depth):
            name = begun[1]
            depth = indent
            told[name] = begun[2]
        elif name is not None:
            told[name] += f" {text}"
    return told


def paragraph(text: str | None) -> str:
    """The first paragraph of a docstring, as one line."""
    first, _, _ = inspect.cleandoc(text or "").partition("\n\n")
    return " ".join(first.split())
