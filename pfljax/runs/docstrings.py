"""The descriptions of options or settings in a docstring of Google's style.

Args:
  lam: the pull of v_k to w; a second
    line goes on.
"""

import inspect
import re

TITLE = re.compile(r"(\w+):")
ENTRY = re.compile(r"  (\w+): (.*)")


def sections(text: str | None) -> dict[str, dict[str, str]]:
    """The description of each name below each title, as one line."""
    texts: dict[str, dict[str, str]] = {}
    title = name = None
    for line in inspect.cleandoc(text or "").splitlines():
        if line[:1].strip():
            heading = TITLE.fullmatch(line)
            title = heading[1] if heading else None
            name = None
        elif title and (entry := ENTRY.fullmatch(line)):
            name = entry[1]
            texts.setdefault(title, {})[name] = entry[2]
        elif title and name and line.strip():
            texts[title][name] += f" {line.strip()}"
    return texts
