"""Data in LEAF's layout: one or more JSON files of users, in `train` and `test`.

Caldas et al., LEAF, 2018, https://arxiv.org/abs/1812.01097. A file holds "users" and
"user_data": {user: {"x": rows, "y": labels}}. Rows are 784 grey values (FEMNIST), any
other numbers, or texts whose next character is the label (Shakespeare). "num_samples"
and "hierarchies" are not read: LEAF's own split of Shakespeare writes counts of before
it drops rows and users.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.sources import characters

PARTS = OFFICIAL_NAMES[:2]  # the names of the folders


def leaf(*, path: str, alphabet: str = "leaf", classes: int | None = None) -> Arrays:
    """The data set below `path`, its users the natural clients.

    A user's rows may lie in several files. Texts become the places u8[N, T] of their
    characters in `alphabet`: "leaf", the 80 of LEAF, or "printable", Python's 100, as
    in SuPerFed's code; other characters become the first. 784 numbers become an image
    [28, 28, 1]. `classes` is K where labels are numbers, the largest + 1 by default: 62
    for a part of FEMNIST.

    Raises:
        ValueError: no such folder or alphabet, or files of another layout.
    """
    letters = characters.alphabet(alphabet)
    found = [
        (number, user, x, y)
        for number, part in enumerate(PARTS)
        for user, x, y in _users(Path(path) / part, letters)
        if len(y)
    ]
    if not found:
        raise ValueError(f"the users of {path} have no rows")
    official, users, xs, ys = zip(*found, strict=True)
    if len({x.dtype for x in xs}) > 1:
        raise ValueError(f"{path} mixes texts and numbers; give all users the same")
    if len({x.shape[1:] for x in xs}) > 1:
        raise ValueError(f"rows of two users of {path} differ in length or shape")
    sizes = [len(y) for y in ys]
    x, y = np.concatenate(xs), np.concatenate(ys)
    given = {
        "client": np.repeat(np.unique(users, return_inverse=True)[1], sizes),
        "official": np.repeat(official, sizes),
        "name": Path(path).name,
    }
    if x.dtype == np.uint8:
        count, names = classes or len(letters), tuple(letters)
        return from_arrays(
            x, y, num_classes=count, class_names=names, scale=1.0, **given
        )
    x = x.reshape(-1, 28, 28, 1) if x.shape[1:] == (784,) else x
    return from_arrays(x, y, num_classes=classes or int(y.max()) + 1, **given)


def _users(folder: Path, letters: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(user, x [n, ...], y [n]) of each user of each file; texts are u8, x else f32."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(
            f"{folder} has no .json file; expected LEAF's folders train and test; name "
            "the folder of both, such as FEMNIST's: --dataset "
            "leaf:path=FOLDER,classes=62"
        )
    for file in files:
        for user, x, y in _lists(file):
            yield user, *_encoded(x, y, letters, f"{file}: user {user!r}")


def _lists(file: Path) -> list[tuple[str, list[Any], list[Any]]]:
    """(user, x, y) of each user of a file."""
    try:
        held = json.loads(file.read_text("utf-8"))
        rows = [(user, held["user_data"][user]) for user in held["users"]]
        found = [(user, lists["x"], lists["y"]) for user, lists in rows]
        uneven = [user for user, x, y in found if len(x) != len(y)]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not of LEAF's layout: {error!r}") from error
    if uneven:
        raise ValueError(
            f"{file}: user {uneven[0]!r} has another number of x than of y"
        )
    return found


def _encoded(
    x: list[Any], y: list[Any], letters: str, whose: str
) -> tuple[np.ndarray, np.ndarray]:
    """One user's rows and labels as arrays."""
    texts = {isinstance(value, str) for value in (*x, *y)}
    if len(texts) > 1:
        raise ValueError(f"{whose} mixes texts and numbers; give texts text labels")
    if texts == {True}:
        if len({len(text) for text in x}) > 1 or any(len(label) != 1 for label in y):
            raise ValueError(
                f"{whose} has texts that differ in length, or a label is not one "
                "character"
            )
        rows = characters.places("".join(x), letters).reshape(len(x), -1)
        return rows, characters.places("".join(y), letters)
    try:
        return np.asarray(x, np.float32), np.asarray(y)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{whose} has rows that are not numbers of one shape ({error})"
        ) from error
