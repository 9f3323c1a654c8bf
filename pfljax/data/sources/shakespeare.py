"""Shakespeare's plays by speaking role: the next character after 80 of a role's text.

As LEAF cuts it (Caldas et al. 2018, https://arxiv.org/abs/1812.01097): a role is a
client, its speeches one text with single spaces, its last rows the official test rows.
"""

import json
import lzma
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pfljax.data.arrays import OFFICIAL_TEST, OFFICIAL_TRAIN, Arrays, from_arrays
from pfljax.data.sources import archives, characters

NAME = "shakespeare_roles"
FILE = "packed/shakespeare_roles.json.xz"  # {"play/ROLE": text}, below the raw folder
LENGTH = 80  # characters that the model sees
UNUSED = 255


def rows(
    texts: Mapping[str, str], stride: int, min_rows: int, test: float, alphabet: str
) -> Arrays:
    """The roles of `texts` as clients, u8[N, 80], each row with its next character.

    Rows start every `stride` characters: 1 is LEAF's, 80 shows a character once. The
    first int((1 - test) * n) of a role's n rows are official train rows; test rows
    start 80 characters or more after the last of them, so they share no input.
    Roles without both, or with fewer than `min_rows` in all, are left out; test = 0 has
    train rows only. Letters as in `leaf`. Validation rows are drawn from the train rows
    and overlap them where the stride is below 80.

    Raises:
        ValueError: a number out of range, or no role is left.
    """
    letters = characters.alphabet(alphabet)
    _check(stride, min_rows, test)
    expected_parts = 2 if test else 1
    windows_of_role = []
    parts_of_role = []
    for text in texts.values():
        windows = cut(text, letters, stride)
        part = split(len(windows), stride, test)
        used = part != UNUSED
        parts = np.unique(part[used])
        if len(parts) == expected_parts and np.sum(used) >= min_rows:
            windows_of_role.append(windows[used])
            parts_of_role.append(part[used])
    if not windows_of_role:
        raise ValueError(
            f"no role has train and test rows, and {min_rows} in all, with stride "
            f"{stride} and test {test}; choose a smaller min_rows or stride"
        )
    all_windows = np.concatenate(windows_of_role)
    size = [len(part) for part in parts_of_role]
    return from_arrays(
        np.ascontiguousarray(all_windows[:, :LENGTH]),
        all_windows[:, LENGTH],
        client=np.repeat(np.arange(len(size)), size),
        official=np.concatenate(parts_of_role),
        num_classes=len(letters),
        scale=1.0,
        name=NAME,
        source="W. Shakespeare, 37 plays by speaking role; public domain",
        class_names=tuple(letters),
    )


def cut(text: str, letters: str, stride: int) -> np.ndarray:
    """u8[n, 81]: 80 characters and the next, from every `stride`-th one of the text."""
    codes = characters.indices(" ".join(text.split()), letters)
    if len(codes) <= LENGTH:
        return np.empty((0, LENGTH + 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(codes, LENGTH + 1)[::stride]


def split(count: int, stride: int, test: float) -> np.ndarray:
    """u8[n], the official split of each of `count` rows, UNUSED between the two."""
    num_train = max(1, int((1 - test) * count)) if test else count
    # Rows that overlap the input of the last train row are used by neither part.
    first_test_character = (num_train - 1) * stride + LENGTH
    overlaps = np.arange(count) * stride < first_test_character
    part = np.where(overlaps, UNUSED, OFFICIAL_TEST)
    part[:num_train] = OFFICIAL_TRAIN
    return part.astype(np.uint8)


def read(raw_dir: Path) -> dict[str, str]:
    """Each role's text, from the packed file below `raw_dir`.

    Raises:
        FileNotFoundError: says which file was expected.
        ValueError: the file is not {role: text}.
    """
    file = raw_dir / FILE
    if not file.is_file():
        raise FileNotFoundError(f"no {file.name} in {file.parent}")
    with archives.about(file, "fetch it again"):
        try:
            content = lzma.decompress(file.read_bytes())
        except lzma.LZMAError as error:
            raise ValueError(f"it is no whole xz file: {error}") from error
        return parsed(content)


def parsed(content: bytes) -> dict[str, str]:
    """The text of each role, of JSON.

    Raises:
        ValueError: the JSON is broken, or not {role: text}.
    """
    try:
        texts = json.loads(content)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deep") from error
    types = {type(text) for text in texts.values()} if isinstance(texts, dict) else None
    if types != {str}:
        raise ValueError("it is of another layout; expected {role: text}")
    return texts


def _check(stride: int, min_rows: int, test: float) -> None:
    if stride < 1:
        raise ValueError(f"stride is {stride}; choose at least 1")
    if min_rows < 1:
        raise ValueError(f"min_rows is {min_rows}; choose at least 1")
    if not 0 <= test < 1:
        raise ValueError(f"test is {test}; choose a share of the rows in [0, 1)")
