"""Data in LEAF's layout: one or more JSON files of users, in `train` and `test`.

Caldas et al., LEAF, 2018, https://arxiv.org/abs/1812.01097. A file holds "users" and
"user_data": {user: {"x": rows, "y": labels}}. Rows are 784 grey values (FEMNIST), any
other numbers, or texts whose next character is the label (Shakespeare). "num_samples"
and "hierarchies" are not read: LEAF's own split of Shakespeare writes counts of before
it drops rows and users.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays, renumbered
from pfljax.data.edge import Classes, brief
from pfljax.data.sources import archives, characters
from pfljax.registry import checked

MOST_UNNAMED = 1000  # classes; more than that are given, or are fewer than rows
PARTS = OFFICIAL_NAMES[:2]  # the names of the folders


class UserRows(NamedTuple):
    """What one file says of one user."""

    user: str
    x: np.ndarray  # [n, ...], u8 for texts, else f32
    y: np.ndarray  # [n]


@checked
def leaf(*, path: str, alphabet: str = "leaf", classes: Classes = None) -> Arrays:
    """The data set below `path`, its users the natural clients.

    A user's rows may lie in several files. Texts become u8[N, T], the indices of
    their characters in `alphabet`: "leaf", the 80 of LEAF, or "printable", Python's
    100, as in SuPerFed's code; other characters become the first. 784 numbers become
    an image [28, 28, 1]. `classes` is K where labels are numbers, the largest + 1 by
    default: 62 for a part of FEMNIST.

    Raises:
        ValueError: no such folder or alphabet, or files of another layout.
    """
    letters = characters.alphabet(alphabet)
    lists = [
        (index, rows)
        for index, part in enumerate(PARTS)
        for rows in _users(Path(path) / part, letters)
        if len(rows.y)
    ]
    if not lists:
        raise ValueError(f"the users of {path} have no rows")
    _check_alike([rows for _, rows in lists], path)
    size = [len(rows.y) for _, rows in lists]
    users = renumbered([rows.user for _, rows in lists])
    x = np.concatenate([rows.x for _, rows in lists])
    y = np.concatenate([rows.y for _, rows in lists])
    client = np.repeat(users, size)
    official = np.repeat([index for index, _ in lists], size)
    name = Path(path).name
    if x.dtype == np.uint8:
        return from_arrays(
            x,
            y,
            client=client,
            official=official,
            name=name,
            num_classes=classes or len(letters),
            class_names=tuple(letters),
            scale=1.0,
        )
    # FEMNIST: the files hold each image as one row of grey values.
    if x.shape[1:] == (784,):
        x = x.reshape(-1, 28, 28, 1)
    with archives.about(Path(path), "mend the rows, or give classes=K"):
        return from_arrays(
            x,
            y,
            client=client,
            official=official,
            name=name,
            num_classes=classes or _classes(y),
        )


def _classes(y: np.ndarray) -> int | None:
    """K by the labels; None where they may be ids, which `from_arrays` decides."""
    if y.dtype.kind in "iu" and y.max() < MOST_UNNAMED:
        return int(y.max()) + 1
    return None


def _check_alike(users: list[UserRows], path: str) -> None:
    if len({rows.x.dtype for rows in users}) > 1:
        raise ValueError(f"{path} mixes texts and numbers; give all users the same")
    if len({rows.x.shape[1:] for rows in users}) > 1:
        raise ValueError(f"rows of two users of {path} differ in length or shape")


def _users(folder: Path, letters: str) -> Iterator[UserRows]:
    """The rows of each user of each file."""
    files = sorted(file for file in folder.glob("*.json") if file.is_file())
    if not files:
        raise ValueError(
            f"{folder} has no .json file; expected LEAF's folders train and test; name "
            "the folder of both, such as FEMNIST's: --dataset "
            "leaf:path=FOLDER,classes=62"
        )
    for file in files:
        for user, x_list, y_list in _lists(file):
            x, y = _encoded(x_list, y_list, letters, f"{file}: user {user!r}")
            yield UserRows(user, x, y)


def _lists(file: Path) -> list[tuple[str, list[Any], list[Any]]]:
    """(user, x, y) of each user of a file."""
    lists = []
    uneven = []
    try:
        content = json.loads(file.read_text("utf-8"))
        for user in content["users"]:
            rows = content["user_data"][user]
            lists.append((user, list(rows["x"]), list(rows["y"])))
            if len(rows["x"]) != len(rows["y"]):
                uneven.append(user)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} is not of LEAF's layout: {type(error).__name__} {brief(error)}; "
            'expected {"users": [user], "user_data": {user: {"x": rows, "y": labels}}}'
        ) from error
    if uneven:
        raise ValueError(
            f"{file}: user {uneven[0]!r} has another number of x than of y"
        )
    _check_once([user for user, _, _ in lists], file)
    return lists


def _check_once(users: list[str], file: Path) -> None:
    twice = [user for user, count in Counter(users).items() if count > 1]
    if twice:
        raise ValueError(
            f"{file} lists user {twice[0]!r} twice, and its rows would count twice; "
            f"list every user once ({len(twice)} such users)"
        )


def _encoded(
    x: list[Any], y: list[Any], letters: str, whose: str
) -> tuple[np.ndarray, np.ndarray]:
    """One user's rows and labels as arrays."""
    num_texts = sum(isinstance(value, str) for value in (*x, *y))
    if 0 < num_texts < len(x) + len(y):
        raise ValueError(f"{whose} mixes texts and numbers; give texts text labels")
    if num_texts:
        lengths = {len(text) for text in x}
        if len(lengths) > 1 or any(len(label) != 1 for label in y):
            raise ValueError(
                f"{whose} has texts that differ in length, or a label is not one "
                "character"
            )
        rows = characters.indices("".join(x), letters)
        labels = characters.indices("".join(y), letters)
        return rows.reshape(len(x), -1), labels
    try:
        return np.asarray(x, np.float32), np.asarray(y)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{whose} has rows that are not numbers of one shape ({brief(error)})"
        ) from error
