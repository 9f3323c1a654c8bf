"""Shakespeare's plays by speaking role: the next character after 80 of a role's text.

The examples are those of LEAF (Caldas et al. 2018, https://arxiv.org/abs/1812.01097): a
role is a client, its speeches are one text with single spaces, and the end of the text
makes the official test examples.
"""

import json
import lzma
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pfljax.data.arrays import OFFICIAL_TEST, OFFICIAL_TRAIN, Arrays, from_arrays
from pfljax.data.files import reading
from pfljax.data.sources import characters

FILE = "packed/shakespeare_roles.json.xz"  # {"play/ROLE": text}, below the raw folder
LENGTH = 80  # characters that the model sees
UNUSED = 255


def examples(
    texts: Mapping[str, str],
    stride: int,
    min_size: int,
    test: float,
    alphabet: str,
    task: str = "classes",
) -> Arrays:
    """Makes each role a client of examples u8[N, 80], labelled by the next character.

    An example starts every `stride` characters: LEAF has 1, and with 80 each character
    is seen once. The first int((1 - test) * n) of a role's n examples are for training;
    test examples start at least 80 characters after the last of them, so they share no
    input. Roles without both, or with fewer than `min_size` in all, are left out; with
    test = 0 all examples are for training. The alphabet is that of `leaf`. Validation
    examples are drawn from those for training, and overlap them if the stride is below
    80. With the task "tokens" the label is the next character of each of the 80.

    Raises:
        ValueError: no role is left.
    """
    letters = characters.ALPHABETS[alphabet]
    windows_of_role = []
    parts_of_role = []
    for text in texts.values():
        windows = cut(text, letters, stride)
        part = split(len(windows), stride, test)
        used = part != UNUSED
        has_parts = len(np.unique(part[used])) == (2 if test else 1)
        if has_parts and np.sum(used) >= min_size:
            windows_of_role.append(windows[used])
            parts_of_role.append(part[used])
    if not windows_of_role:
        raise ValueError(
            f"no role has train and test examples, and {min_size} in all, with stride "
            f"{stride} and test {test}; choose a smaller min_size or stride"
        )
    windows = np.concatenate(windows_of_role)
    size = [len(part) for part in parts_of_role]
    return from_arrays(
        np.ascontiguousarray(windows[:, :LENGTH]),
        windows[:, 1:] if task == "tokens" else windows[:, LENGTH],
        client=np.repeat(np.arange(len(size)), size),
        official=np.concatenate(parts_of_role),
        task=task,
        num_classes=len(letters),
        scale=1.0,
        name="shakespeare_roles",
        source="W. Shakespeare, 37 plays by speaking role; public domain",
        class_names=tuple(letters),
    )


def cut(text: str, letters: str, stride: int) -> np.ndarray:
    """Cuts a text into u8[n, 81], one window for each `stride` characters."""
    codes = characters.indices(" ".join(text.split()), letters)
    if len(codes) <= LENGTH:
        return np.empty((0, LENGTH + 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(codes, LENGTH + 1)[::stride]


def split(count: int, stride: int, test: float) -> np.ndarray:
    """Returns the official split of each of `count` windows, UNUSED between the two."""
    num_train = max(1, int((1 - test) * count)) if test else count
    # Windows that overlap the input of the last training window belong to no part.
    first_test_character = (num_train - 1) * stride + LENGTH
    overlaps = np.arange(count) * stride < first_test_character
    part = np.where(overlaps, UNUSED, OFFICIAL_TEST)
    part[:num_train] = OFFICIAL_TRAIN
    return part.astype(np.uint8)


def read(file: Path) -> dict[str, str]:
    """Reads each role's text, in sorted order.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not {role: text}.
    """
    with reading(file, "fetch it again"):
        texts = json.loads(lzma.decompress(file.read_bytes()))
        if not isinstance(texts, dict) or {*map(type, texts.values())} != {str}:
            raise ValueError("it is of another layout; expected {role: text}")
    return dict(sorted(texts.items()))
