"""Texts as indices into an alphabet, for models of the next character."""

import string
from typing import Literal

import numpy as np

Alphabet = Literal["leaf", "printable"]
ALPHABETS = {
    # LEAF's 80 characters, and Python's 100.
    "leaf": "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]"
    "abcdefghijklmnopqrstuvwxyz}",
    "printable": string.printable,
}


def indices(text: str, letters: str) -> np.ndarray:
    """Maps characters to their indices in `letters`, u8[characters]; others to 0."""
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    # A table by code point. Its last entry stands for all that are beyond `letters`.
    beyond = ord(max(letters)) + 1
    index_of = np.zeros(beyond + 1, np.uint8)
    index_of[[ord(letter) for letter in letters]] = np.arange(len(letters))
    return index_of[np.minimum(codes, beyond)]
