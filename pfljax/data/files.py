"""Files that may be cut or damaged: an error names the file and a remedy."""

import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pfljax.data.values import brief


@contextlib.contextmanager
def reading(file: Path | str, remedy: str) -> Iterator[None]:
    """Turns an error of the block into a ValueError with the file and a remedy.

    A file that is not there stays a FileNotFoundError.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    # Damage in an archive, a header or the data raises a dozen types of errors.
    except Exception as error:
        raise ValueError(f"{file} cannot be read ({brief(error)}); {remedy}") from error


def read_npz(
    file: Path,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    *,
    strict: bool = False,
) -> dict[str, np.ndarray]:
    """Reads the arrays of these names from an .npz file.

    Raises:
        ValueError: the file is cut or lacks an array, or it has another one and
            `strict` is set.
    """
    # Reading a pipe would never end, and NumPy takes other files for pickles.
    if not file.is_file() or not zipfile.is_zipfile(file):
        raise ValueError("it is no .npz archive, or is cut")
    # Without pickles: a file from elsewhere cannot run code.
    with np.load(file, allow_pickle=False) as stored:
        names = stored.files
        wanted = [name for name in (*needed, *optional) if name in names]
        arrays = {name: stored[name] for name in wanted}
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise ValueError(f"it lacks {missing[0]!r}; it has {names}")
    if strict and (others := sorted(set(names) - set(wanted))):
        raise ValueError(
            f"it has {', '.join(others)}, which would not be read; write it again with "
            f"no other arrays than {', '.join((*needed, *optional))}"
        )
    return arrays
