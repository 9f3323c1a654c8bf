"""Data sets of tensorflow-datasets: read where they are prepared, or downloaded.

The array_record format is read without TensorFlow. `tensorflow_datasets` is imported by
the functions that need it.
"""

import contextlib
import importlib.util
import io
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.sources.raw_archives import SOURCES

BATCH = 1000  # records read at once
NAME = re.compile(r"[A-Za-z]\w*(/[\w.\-]+)?(:[\w.*]+)?")  # set/config:version


class MissingDataset(RuntimeError):  # noqa: N818
    """The data set is not on this machine; the message has the command to run."""


class UnknownDataset(ValueError):  # noqa: N818
    """tensorflow-datasets has no data set of this name."""


def read(name: str, data_dirs: Sequence[str | None]) -> Arrays:
    """Reads the data set of the first folder that has it; None is TFDS's own."""
    formats: list[str | None] = ["array_record"]
    # Other formats (tfrecord) are read by TensorFlow alone, which may be missing.
    if importlib.util.find_spec("tensorflow"):
        formats.append(None)
    for file_format, data_dir in product(formats, data_dirs):
        builder = _builder(name, data_dir, file_format)
        if builder.info.splits:
            records = _records if file_format else _tensorflow_records
            return _arrays(name, builder, records)
    raise MissingDataset(
        f"data set {name!r} is not prepared; run: pfljax prepare {name}"
    )


def download(name: str, home: Path) -> None:
    """Downloads the data set and prepares it below `home`, unless it is there."""
    import tensorflow_datasets as tfds

    builder = _builder(name, str(home), "array_record")
    if builder.info.splits:
        return
    if not importlib.util.find_spec("tensorflow"):
        raise MissingDataset(
            f"cannot prepare {name!r}: give raw_dir= (or PFLJAX_RAW_DIR) a folder of "
            "raw archives, or install TensorFlow to download it: "
            "pip install 'pfljax[prepare]'"
        )
    tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare()
    except OSError as error:
        raise MissingDataset(
            f"cannot prepare {name!r} in {home} ({type(error).__name__}: {error}); is "
            "there a network, or room? Else give raw_dir= a folder of raw archives"
        ) from error


def _builder(name: str, data_dir: str | None, file_format: str | None) -> Any:
    import tensorflow_datasets as tfds

    if not NAME.fullmatch(name):
        raise UnknownDataset(f"{name!r} is no name of a data set")
    try:
        return tfds.builder(name, data_dir=data_dir, file_format=file_format)
    except tfds.core.DatasetNotFoundError as error:
        raise UnknownDataset(f"TFDS has no data set {name!r}") from error
    except (ValueError, AssertionError) as error:
        # The message on a config or version has many lines; its last words are enough.
        reason = " ".join(str(error).split()).rsplit('": ', 1)[-1]
        raise ValueError(f"TFDS has no data set {name!r}: {reason[-200:]}") from error


def _arrays(name: str, builder: Any, records: Any) -> Arrays:
    """Decodes all official splits of an image classification set."""
    image, label = _keys(name, builder)
    x = []
    y = []
    official = []
    for number, split in enumerate(OFFICIAL_NAMES):
        if split not in builder.info.splits:
            continue
        for record in records(builder, split, image):
            x.append(_pixels(record[image]))
            y.append(record[label])
            official.append(number)
    if len({pixels.shape for pixels in x}) > 1:
        raise ValueError(f"images of {name!r} differ in size; one size is needed")
    classes = builder.info.features[label]
    set_name = re.split("[/:]", name)[0]
    return from_arrays(
        np.stack(x),
        np.array(y, np.int64),
        official=official,
        num_classes=classes.num_classes,
        name=name,
        source=SOURCES.get(set_name, f"tensorflow-datasets {builder.info.full_name}"),
        class_names=classes.names,
    )


def _keys(name: str, builder: Any) -> tuple[str, str]:
    """Returns the names of the image and of the label among the features."""
    import tensorflow_datasets as tfds

    keys = builder.info.supervised_keys
    features = builder.info.features
    if keys and len(keys) == 2 and all(isinstance(key, str) for key in keys):
        image, label = keys
        has_image = isinstance(features[image], tfds.features.Image)
        has_label = isinstance(features[label], tfds.features.ClassLabel)
        if has_image and has_label:
            return image, label
    raise ValueError(f"TFDS's {name!r} is not an image classification set")


def _records(builder: Any, split: str, image: str) -> Iterator[dict[str, Any]]:
    """Yields the records in stored order, images still encoded."""
    import tensorflow_datasets as tfds

    # Pillow decodes them 3 times faster than TFDS does.
    skip: Any = {image: tfds.decode.SkipDecoding()}
    source = builder.as_data_source(split=split, decoders=skip)
    for first in range(0, len(source), BATCH):
        last = min(first + BATCH, len(source))
        yield from source.__getitems__(list(range(first, last)))


def _tensorflow_records(
    builder: Any, split: str, image: str
) -> Iterator[dict[str, Any]]:
    import tensorflow_datasets as tfds

    yield from tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False))


def _pixels(image: Any) -> np.ndarray:
    """Decodes an image, unless it is decoded, to u8[height, width, channels]."""
    from PIL import Image

    if isinstance(image, bytes):
        image = np.asarray(Image.open(io.BytesIO(image)))
    return image[..., None] if image.ndim == 2 else image
