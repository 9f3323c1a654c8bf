"""Files from elsewhere: read whole, or refused in one line that names them."""

import contextlib
import gzip
import io
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

DAMAGE = (  # what reading a broken archive raises, in its zip, its heads or its arrays
    ValueError,
    KeyError,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    SyntaxError,
    MemoryError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


@contextlib.contextmanager
def opened(
    file: Path,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    *,
    mend: str,
    alone: bool = False,
) -> Iterator[dict[str, np.ndarray]]:
    """The arrays of these names in an .npz, as far as it has the optional ones.

    What the block finds wrong with them is told of the file as well, with what to do.

    Raises:
        ValueError: the file is cut, empty, foreign or damaged, or lacks an array; or,
            if they must be `alone`, has another.
    """
    with about(file, mend):
        yield _arrays(file, needed, optional, alone)


@contextlib.contextmanager
def about(file: Path, mend: str) -> Iterator[None]:
    """Around what is read of a file: a ValueError names it, and says what to do."""
    try:
        yield
    except ValueError as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{file} cannot be read ({said}); {mend}") from error


def unzipped(file: Path) -> bytes:
    """The content of a gzipped file.

    Raises:
        ValueError: it is cut, or no such file.
    """
    try:
        return gzip.decompress(file.read_bytes())
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"it is no whole gzip file: {error}") from error


def picture(content: bytes | Path) -> np.ndarray:
    """u8[height, width, 3] of an encoded picture.

    Raises:
        ValueError: it cannot be decoded.
    """
    from PIL import Image, UnidentifiedImageError

    source = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        with Image.open(source) as image:
            return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError as error:
        # Its own words have an address in memory, which is another at every call.
        raise ValueError(
            "a picture cannot be decoded: it is of no known form"
        ) from error
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"a picture cannot be decoded: {error}") from error


def _arrays(
    file: Path, needed: Sequence[str], optional: Sequence[str], alone: bool
) -> dict[str, np.ndarray]:
    # A folder or a pipe has no end to read to.
    if not file.is_file():
        raise ValueError("it is no file")
    # NumPy takes other files for its own older forms, and says so at length.
    if not _is_zip(file):
        raise ValueError("it is no .npz archive, or is cut")
    try:
        # Without pickles: a file from elsewhere cannot run code.
        with np.load(file, allow_pickle=False) as stored:
            names = stored.files
            wanted = [name for name in (*needed, *optional) if name in names]
            arrays = {name: stored[name] for name in wanted}
    except DAMAGE as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise ValueError(f"it lacks {missing[0]!r}; it has {names}")
    if alone and (others := sorted(set(names) - set(wanted))):
        expected = ", ".join((*needed, *optional))
        raise ValueError(f"it has {others[0]!r}, which nobody reads, beside {expected}")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"its {name!r} is no array")
    return arrays


def _is_zip(file: Path) -> bool:
    """Whether both ends are those of a zip archive."""
    with file.open("rb") as stream:
        return stream.read(2) == b"PK" and zipfile.is_zipfile(stream)
