"""Texts as indices into an alphabet, for models of the next character."""

import string

import numpy as np

from pfljax import registry

ALPHABETS = {
    "leaf": "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]"
    "abcdefghijklmnopqrstuvwxyz}",
    "printable": string.printable,
}


def alphabet(name: str) -> str:
    """Returns the characters of "leaf", LEAF's 80, or "printable", Python's 100.

    Raises:
        ValueError: for another name.
    """
    registry.require_known("alphabet", name, ALPHABETS)
    return ALPHABETS[name]


def indices(text: str, letters: str) -> np.ndarray:
    """Maps characters to their indices in `letters`, u8[characters]; others to 0."""
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    # A table by code point. Its last entry stands for all that are beyond `letters`.
    beyond = ord(max(letters)) + 1
    index_of = np.zeros(beyond + 1, np.uint8)
    index_of[[ord(letter) for letter in letters]] = np.arange(len(letters))
    return index_of[np.minimum(codes, beyond)]
