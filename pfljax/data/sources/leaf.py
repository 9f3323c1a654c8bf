"""Data in LEAF's layout: one or more JSON files of users, in `train` and `test`.

Caldas et al., LEAF, 2018, https://arxiv.org/abs/1812.01097. A file holds "users" and
"user_data": {user: {"x": examples, "y": labels}}. Examples are 784 grey values
(FEMNIST), any other numbers, or texts whose next character is the label (Shakespeare).
"num_samples" and "hierarchies" are not read: LEAF's own split of Shakespeare writes the
counts before it drops examples and users.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays, renumber
from pfljax.data.edge import Classes, brief, reading
from pfljax.data.sources import characters
from pfljax.registry import validate

MOST_UNNAMED = 1000  # classes; more than that are given, or are fewer than rows
PARTS = OFFICIAL_NAMES[:2]  # the names of the folders


class User(NamedTuple):
    """The examples of one user in one file."""

    name: str
    x: np.ndarray  # [n, ...], u8 for texts, else f32
    y: np.ndarray  # [n]


@validate
def leaf(*, path: str, alphabet: str = "leaf", classes: Classes = None) -> Arrays:
    """Loads the data set below `path`, its users the natural clients.

    A user's examples may lie in several files. Texts become u8[N, T], the indices of
    their characters in `alphabet`: "leaf", the 80 of LEAF, or "printable", Python's
    100, as in SuPerFed's code; other characters become the first. 784 numbers become
    an image [28, 28, 1]. `classes` is K where labels are numbers, the largest + 1 by
    default: 62 for a part of FEMNIST.

    Raises:
        ValueError: no such folder or alphabet, or files of another layout.
    """
    letters = characters.alphabet(alphabet)
    users = []
    parts = []
    for index, part in enumerate(PARTS):
        for user in _users(Path(path) / part, letters):
            users.append(user)
            parts.append(index)
    if not users:
        raise ValueError(f"the users of {path} have no examples")
    _check_alike(users, path)
    size = [len(user.y) for user in users]
    x = np.concatenate([user.x for user in users])
    y = np.concatenate([user.y for user in users])
    client = np.repeat(renumber([user.name for user in users]), size)
    official = np.repeat(parts, size)
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
    # FEMNIST: the files hold each image as one list of grey values.
    if x.shape[1:] == (784,):
        x = x.reshape(-1, 28, 28, 1)
    with reading(Path(path), "repair the data, or give classes=K"):
        return from_arrays(
            x,
            y,
            client=client,
            official=official,
            name=name,
            num_classes=classes or _count_classes(y),
        )


def _count_classes(y: np.ndarray) -> int | None:
    """Returns K by the labels; None where they may be ids (`from_arrays` decides)."""
    if y.dtype.kind in "iu" and y.max() < MOST_UNNAMED:
        return int(y.max()) + 1
    return None


def _check_alike(users: list[User], path: str) -> None:
    if len({user.x.dtype for user in users}) > 1:
        raise ValueError(f"{path} mixes texts and numbers; give all users the same")
    if len({user.x.shape[1:] for user in users}) > 1:
        raise ValueError(f"examples of two users of {path} differ in length or shape")


def _users(folder: Path, letters: str) -> Iterator[User]:
    """Yields the users with examples of each file."""
    files = sorted(file for file in folder.glob("*.json") if file.is_file())
    if not files:
        raise ValueError(
            f"{folder} has no .json file; expected LEAF's folders train and test; name "
            "the folder of both, such as FEMNIST's: --dataset "
            "leaf:path=FOLDER,classes=62"
        )
    for file in files:
        for user, x_list, y_list in _lists(file):
            x, y = _encode(x_list, y_list, letters, f"{file}: user {user!r}")
            if len(y):
                yield User(user, x, y)


def _lists(file: Path) -> list[tuple[str, list[Any], list[Any]]]:
    """Reads (user, x, y) of each user of a file."""
    try:
        content = json.loads(file.read_text("utf-8"))
        data = content["user_data"]
        lists = [
            (user, list(data[user]["x"]), list(data[user]["y"]))
            for user in content["users"]
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} is not of LEAF's layout: {type(error).__name__} {brief(error)}; "
            'expected {"users": [user], "user_data": {user: {"x": x, "y": labels}}}'
        ) from error
    for user, x, y in lists:
        if len(x) != len(y):
            raise ValueError(f"{file}: user {user!r} has another number of x than of y")
    twice = [user for user, count in Counter(content["users"]).items() if count > 1]
    if twice:
        raise ValueError(
            f"{file} lists user {twice[0]!r} twice, and its examples would count twice"
        )
    return lists


def _encode(
    x: list[Any], y: list[Any], letters: str, whose: str
) -> tuple[np.ndarray, np.ndarray]:
    """Converts one user's examples and labels to arrays."""
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
        codes = characters.indices("".join(x), letters)
        labels = characters.indices("".join(y), letters)
        return codes.reshape(len(x), -1), labels
    try:
        return np.asarray(x, np.float32), np.asarray(y)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{whose} has examples that are not numbers of one shape ({brief(error)})"
        ) from error
