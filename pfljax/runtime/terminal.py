"""Text on the terminal, without control characters that the terminal would obey."""

import unicodedata
from typing import Any, TextIO


def printable(text: str) -> str:
    r"""Writes control characters as escapes (\x1b), but for tabs and line breaks."""
    if text.isprintable():
        return text
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    is_control = unicodedata.category(character)[0] == "C" and character not in "\t\n"
    return ascii(character)[1:-1] if is_control else character


def show(text: Any, file: TextIO | None = None) -> None:
    """Prints text on stdout, or on `file`."""
    print(printable(str(text)), file=file, flush=True)
