"""What a docstring says of each option or setting: the sections of Google's style.

Args:
  lam: the pull of v_k to w; a second
    line goes on.
"""

import inspect
import re
from collections.abc import Callable

TITLE = re.compile(r"(\w+):")
ENTRY = re.compile(r"  (\w+): (.*)")


def sections(text: str | None) -> dict[str, dict[str, str]]:
    """The text of each name below each title, in one line."""
    texts: dict[str, dict[str, str]] = {}
    title = name = None
    for line in inspect.cleandoc(text or "").splitlines():
        if line[:1].strip():
            begun = TITLE.fullmatch(line)
            title = begun[1] if begun else None
            name = None
        elif title and (entry := ENTRY.fullmatch(line)):
            name = entry[1]
            texts.setdefault(title, {})[name] = entry[2]
        elif title and name and line.strip():
            texts[title][name] += f" {line.strip()}"
    return texts


def options_told(factory: Callable) -> dict[str, str]:
    """What the docstring says of each option, by name, in one line each."""
    return sections(factory.__doc__).get("Args", {})


def paragraph(text: str | None) -> str:
    """The first paragraph of a docstring, as one line."""
    first, _, _ = inspect.cleandoc(text or "").partition("\n\n")
    return " ".join(first.split())
