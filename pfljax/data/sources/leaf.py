"""Data in LEAF's layout: one or more JSON files of users, in `train` and `test`.

Caldas et al., LEAF, 2018, https://arxiv.org/abs/1812.01097. A file holds "users" and
"user_data": {user: {"x": examples, "y": labels}}. Examples are 784 grey values
(FEMNIST), any other numbers, or texts whose next character is the label (Shakespeare).
"num_samples" is checked, but not for texts: LEAF's own split of Shakespeare counts
examples that it then drops. "hierarchies" are not read.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.factories import validate
from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.files import reading
from pfljax.data.sources.characters import ALPHABETS, Alphabet, indices
from pfljax.data.values import Classes, brief, infer_type

MOST_UNNAMED = 1000  # classes; more must be given, or be fewer than the examples
PARTS = OFFICIAL_NAMES[:2]  # the names of the folders
LAYOUT = (
    'expected {"users": [user], "user_data": {user: {"x": x, "y": labels}}}, where x '
    "are numbers (FEMNIST), or texts whose next character is y (Shakespeare); link "
    "images (CelebA) as CLIENT/CLASS/*.jpg for images:path=, and write words (Sent140, "
    "Reddit) as integers for npz:path="
)


class User(NamedTuple):
    """The examples of one user in one file."""

    name: str
    x: np.ndarray  # [n, ...], u8 for texts, else f32
    y: np.ndarray  # [n]


@validate
def leaf(*, path: str, alphabet: Alphabet = "leaf", classes: Classes = None) -> Arrays:
    """Loads a folder in LEAF's layout, whose users are the natural clients.

    A user's examples may lie in several files. Texts become u8[N, T], the indices of
    their characters in `alphabet`: "leaf", the 80 of LEAF, or "printable", Python's
    100, as in SuPerFed's code; other characters become the first. 784 numbers become
    an image [28, 28, 1]. `classes` is K where labels are numbers, the largest + 1 by
    default: 62 for a part of FEMNIST.

    Raises:
        ValueError: there is no such folder, or files have another layout.
    """
    letters = ALPHABETS[alphabet]
    parts = [_read_folder(Path(path) / part, letters) for part in PARTS]
    users = [user for part in parts for user in part]
    official = [index for index, part in enumerate(parts) for _ in part]
    if not users:
        raise ValueError(f"the users of {path} have no examples")
    size = [len(user.y) for user in users]
    is_text = {user.x.dtype == np.uint8 for user in users}
    with reading(Path(path), "repair the data, or give classes=K, such as 62"):
        if len(is_text) > 1:
            raise ValueError("it mixes texts and numbers; give all users the same")
        x = np.concatenate([user.x for user in users])
        y = np.concatenate([user.y for user in users])
        options: dict[str, Any]
        if is_text == {True}:
            options = {
                "num_classes": classes or len(letters),
                "class_names": tuple(letters),
                "scale": 1.0,
            }
        else:
            options = {"num_classes": classes or _count_classes(y)}
            # FEMNIST: the files hold each image as one list of grey values.
            if x.shape[1:] == (784,):
                x = x.reshape(-1, 28, 28, 1)
        return from_arrays(
            x,
            y,
            task="classes",
            client=np.repeat([user.name for user in users], size),
            official=np.repeat(official, size),
            name=Path(path).name,
            **options,
        )


def _count_classes(y: np.ndarray) -> int | None:
    """Returns K by the labels; None where they may be ids (`from_arrays` decides)."""
    if y.dtype.kind in "iu" and y.min() == 0 and y.max() < MOST_UNNAMED:
        return int(y.max()) + 1
    return None


def _read_folder(folder: Path, letters: str) -> list[User]:
    """Reads the users with examples of each file."""
    # Hidden files are copies of editors and of other systems.
    files = sorted(file for file in folder.glob("[!.]*.json") if file.is_file())
    if not files:
        raise ValueError(
            f"{folder} has no .json file; expected LEAF's folders train and test; name "
            "the folder of both, such as FEMNIST's: --dataset "
            "leaf:path=FOLDER,classes=62"
        )
    examples: dict[str, list[set]] = {}  # of each user, by file
    users = []
    for file in files:
        with reading(file, LAYOUT):
            for user in _read_file(file, letters):
                if len(user.y):
                    _check_new(user, examples.setdefault(user.name, []))
                    users.append(user)
    return users


def _check_new(user: User, before: list[set]) -> None:
    """Adds the user's examples to those of other files.

    Raises:
        ValueError: one of the files has all of the examples of the other.
    """
    pairs = zip(user.x, user.y.tolist(), strict=True)
    own = {(x.tobytes(), label) for x, label in pairs}
    if any(own <= other or own >= other for other in before):
        raise ValueError(
            f"user {user.name!r} has the same examples in another file of the folder, "
            "and they would count twice; remove one of the files"
        )
    before.append(own)


def _read_file(file: Path, letters: str) -> list[User]:
    content = json.loads(file.read_text("utf-8"))
    names = content["users"]
    if len(set(names)) < len(names):
        raise ValueError("it lists a user twice, whose examples would count twice")
    users = []
    for name in names:
        data = content["user_data"][name]
        try:
            x, y = _encode(data["x"], data["y"], letters)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"of user {name!r}: {brief(error)}") from error
        if len(x) != len(y):
            raise ValueError(f"user {name!r} has {len(x)} x and {len(y)} y")
        users.append(User(name, x, y))
    if "num_samples" in content:
        _check_counts(users, content["num_samples"])
    return users


def _check_counts(users: Sequence[User], counts: Sequence[int]) -> None:
    """Raises a ValueError if users have not as many examples as the file says."""
    # LEAF's own split of texts counts examples that it then drops.
    if any(user.x.dtype == np.uint8 for user in users):
        return
    if len(counts) != len(users):
        raise ValueError(f"num_samples has {len(counts)} numbers of {len(users)} users")
    for user, count in zip(users, counts, strict=True):
        if len(user.y) != count:
            raise ValueError(
                f"user {user.name!r} has {len(user.y)} examples, but num_samples says "
                f"{count!r}; the file is not complete, or was changed"
            )


def _encode(x: list[Any], y: list[Any], letters: str) -> tuple[np.ndarray, np.ndarray]:
    """Converts one user's examples and labels to arrays."""
    kinds = {type(value) for value in (*x, *y)}
    if str not in kinds:
        return np.asarray(x, np.float32), infer_type(np.asarray(y))
    if kinds != {str}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"x and y are {found}")
    lengths = set(map(len, x))
    codes = indices("".join(x), letters)
    labels = indices("".join(y), letters)
    if len(lengths) > 1 or set(map(len, y)) != {1}:
        raise ValueError("texts differ in length, or a label is not one character")
    return codes.reshape(len(x), -1), labels
