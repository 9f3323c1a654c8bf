"""Data in LEAF's layout: one or more JSON files of users, in `train` and `test`.

Caldas et al., LEAF, 2018, https://arxiv.org/abs/1812.01097. A file holds "users" and
"user_data": {user: {"x": rows, "y": labels}}. Rows are 784 grey values (FEMNIST), any
other numbers, or texts whose next character is the label (Shakespeare).
"""

import json
import string
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays

ALPHABETS = {
    "leaf": "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]"
    "abcdefghijklmnopqrstuvwxyz}",
    "printable": string.printable,
}
PARTS = OFFICIAL_NAMES[:2]  # the names of the folders


def leaf(*, path: str, alphabet: str = "leaf") -> Arrays:
    """The data set below `path`, its users the natural clients.

    Texts become the places of their characters in `alphabet`: "leaf", the 80 of LEAF,
    or "printable", Python's 100, as in SuPerFed's code; other characters become the
    first. 784 numbers become an image [28, 28, 1].

    Raises:
        ValueError: no such folder or alphabet, or files of another layout.
    """
    if alphabet not in ALPHABETS:
        known = ", ".join(ALPHABETS)
        raise ValueError(f"unknown alphabet {alphabet!r}; known: {known}")
    xs, ys, users, official = [], [], [], []
    for number, part in enumerate(PARTS):
        for user, rows in _users(Path(path) / part):
            xs += rows["x"]
            ys += rows["y"]
            users += [user] * len(rows["y"])
            official += [number] * len(rows["y"])
    if not xs:
        raise ValueError(f"the users of {path} have no rows")
    given = {"client": users, "official": official, "name": Path(path).name}
    texts = {isinstance(value, str) for value in (*xs, *ys)}
    if len(texts) > 1:
        raise ValueError(f"{path} mixes texts and numbers; give texts text labels")
    if texts == {False}:
        y = np.asarray(ys)
        return from_arrays(_images(xs), y, num_classes=int(y.max()) + 1, **given)
    letters = ALPHABETS[alphabet]
    place = {letter: index for index, letter in enumerate(letters)}
    if len({len(text) for text in xs}) > 1 or any(len(label) != 1 for label in ys):
        raise ValueError(
            f"the texts of {path} differ in length, or a label is not one character"
        )
    x = np.array([[place.get(letter, 0) for letter in text] for text in xs], np.int32)
    y = np.array([place.get(letter, 0) for letter in ys])
    return from_arrays(x, y, num_classes=len(letters), class_names=letters, **given)


def _users(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Each user's rows in the files of a folder."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(
            f"{folder} has no .json file; expected LEAF's folders train and test"
        )
    found = []
    for file in files:
        try:
            held = json.loads(file.read_text("utf-8"))
            found += [(user, held["user_data"][user]) for user in held["users"]]
            uneven = [u for u, rows in found if len(rows["x"]) != len(rows["y"])]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} is not of LEAF's layout: {error!r}") from error
        if uneven:
            raise ValueError(
                f"{file}: user {uneven[0]!r} has another number of x than of y"
            )
    return found


def _images(rows: list[Any]) -> np.ndarray:
    x = np.asarray(rows, np.float32)
    return x.reshape(-1, 28, 28, 1) if x.shape[1:] == (784,) else x
