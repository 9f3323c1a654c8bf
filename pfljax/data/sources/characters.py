"""Texts as places in an alphabet, for models of the next character."""

import string

import numpy as np

ALPHABETS = {
    "leaf": "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]"
    "abcdefghijklmnopqrstuvwxyz}",
    "printable": string.printable,
}


def alphabet(name: str) -> str:
    """The characters of an alphabet: "leaf", LEAF's 80, or "printable", Python's 100.

    Raises:
        ValueError: for another name.
    """
    if name not in ALPHABETS:
        known = ", ".join(ALPHABETS)
        raise ValueError(f"unknown alphabet {name!r}; known: {known}")
    return ALPHABETS[name]


def places(text: str, letters: str) -> np.ndarray:
    """u8[characters], each one's place in `letters`; 0 for those that are not there."""
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    table = np.zeros(ord(max(letters)) + 2, np.uint8)  # the last one: all others
    table[[ord(letter) for letter in letters]] = np.arange(len(letters))
    return table[np.minimum(codes, len(table) - 1)]
