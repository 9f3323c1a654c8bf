"""Prepared tensorflow-datasets folders: read, imported from raw archives, downloaded.

The array_record format is read and written without TensorFlow. `tensorflow_datasets` is
imported by the functions that need it.
"""

import contextlib
import importlib.util
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.sources import raw_archives
from pfljax.data.sources.scratch import scratch

BATCH = 1000  # records read at once
NAME = re.compile(r"[A-Za-z]\w*(/[\w.\-]+)?(:[\w.*]+)?")  # set/config:version

SOURCES = {
    "mnist": "Y. LeCun, C. Cortes, C. Burges; CC BY-SA 3.0",
    "fashion_mnist": "Xiao et al. 2017, arXiv 1708.07747; MIT",
    "cifar10": "A. Krizhevsky 2009; no licence stated",
    "cifar100": "A. Krizhevsky 2009; no licence stated",
    "emnist": "Cohen et al. 2017, arXiv 1702.05373; no licence stated",
}


class MissingDataset(RuntimeError):  # noqa: N818
    """The data set is not on this machine; the message has the command to run."""


class UnknownDataset(ValueError):  # noqa: N818
    """tensorflow-datasets has no data set of this name."""


def read(name: str, data_dirs: Sequence[str | None]) -> Arrays:
    """The data set from the first of `data_dirs` that has it; None is TFDS's own."""
    for data_dir in data_dirs:
        builder = _builder(name, data_dir, file_format="array_record")
        if builder.info.splits:
            return _arrays(name, builder, _records)
    # Other formats (tfrecord) are read by TensorFlow alone, which may be missing.
    if importlib.util.find_spec("tensorflow"):
        for data_dir in data_dirs:
            builder = _builder(name, data_dir)
            if builder.info.splits:
                return _arrays(name, builder, _tensorflow_records)
    raise MissingDataset(
        f"data set {name!r} is not prepared; run: pfljax prepare {name}"
    )


def exists(name: str, data_dir: str) -> bool:
    """Whether `data_dir` has the set in the array_record format."""
    return bool(_builder(name, data_dir, file_format="array_record").info.splits)


def build_from_raw(name: str, raw_dir: Path, home: Path) -> None:
    """Writes the raw archives of `raw_dir` as a TFDS set below `home`, in one step.

    It takes the place of what was there.
    """
    import tensorflow_datasets as tfds

    try:
        columns, class_names = raw_archives.read(name, raw_dir)
    except FileNotFoundError as error:
        raise MissingDataset(
            f"cannot prepare {name!r} from raw archives: {error}"
        ) from error
    # Written beside the target, so that the finished folder is put there by a rename.
    with scratch(home) as workspace:
        builder = _builder(name, str(workspace), file_format="array_record")
        for feature, names in class_names.items():
            builder.info.features[feature].names = list(names)
        generators = {split: _examples(rows) for split, rows in columns.items()}
        # The builder would download: it is given the rows that were read instead.
        builder._split_generators = lambda *_, **__: generators
        config = tfds.download.DownloadConfig(
            try_download_gcs=False,
            compute_stats=tfds.download.ComputeStatsMode.SKIP,
        )
        _quietly(builder, config)
        written = Path(builder.data_dir)
        target = home / written.relative_to(workspace)
        if target.exists():
            # Moved aside, for a folder is not renamed onto one that has files.
            os.rename(target, workspace / "old")
        _move(written, target)


def download(name: str, home: Path) -> None:
    """Downloads and builds the set below `home`; needs network and TensorFlow."""
    if not importlib.util.find_spec("tensorflow"):
        raise MissingDataset(
            f"cannot prepare {name!r}: give raw_dir= (or PFLJAX_RAW_DIR) a folder of "
            "raw archives, or install TensorFlow to download it: "
            "pip install 'pfljax[prepare]'"
        )
    with scratch(home) as workspace:
        builder = _builder(name, str(workspace), file_format="array_record")
        try:
            _quietly(builder, None)
        except OSError as error:
            raise MissingDataset(
                f"cannot download {name!r} ({type(error).__name__}); is there a "
                "network? Else give raw_dir= a folder of raw archives"
            ) from error
        written = Path(builder.data_dir)
        _move(written, home / written.relative_to(workspace))


def _builder(name: str, data_dir: str | None, **options: Any) -> Any:
    import tensorflow_datasets as tfds

    if not NAME.fullmatch(name):
        raise UnknownDataset(f"{name!r} is no name of a data set")
    try:
        return tfds.builder(name, data_dir=data_dir, **options)
    except tfds.core.DatasetNotFoundError as error:
        raise UnknownDataset(f"TFDS has no data set {name!r}") from error
    except (ValueError, AssertionError) as error:
        # Of a config or version, over many lines: the last words say which.
        said = " ".join(str(error).split()).rsplit('": ', 1)[-1]
        raise ValueError(f"TFDS has no data set {name!r}: {said[-200:]}") from error


def _quietly(builder: Any, config: Any) -> None:
    """Runs download_and_prepare without its progress bars and announcements."""
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    with contextlib.redirect_stdout(io.StringIO()):
        builder.download_and_prepare(download_config=config)


def _arrays(name: str, builder: Any, records: Any) -> Arrays:
    """All official splits of an image classification set, decoded."""
    image, label = _keys(name, builder)
    splits = [split for split in OFFICIAL_NAMES if split in builder.info.splits]
    x = []
    y = []
    official = []
    for split in splits:
        for row in records(builder, split, image):
            x.append(_pixels(row[image]))
            y.append(row[label])
            official.append(OFFICIAL_NAMES.index(split))
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
    """Names of the image and of the label among the features."""
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
    """Rows in stored order, images still encoded."""
    import tensorflow_datasets as tfds

    # Pillow decodes them 3 times faster than TFDS does.
    skip: Any = {image: tfds.decode.SkipDecoding()}
    # The reader's threads, if they cannot begin, are waited for without end.
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
    """u8[height, width, channels] of an encoded or decoded image."""
    from PIL import Image

    if isinstance(image, bytes):
        image = np.asarray(Image.open(io.BytesIO(image)))
    return image[..., None] if image.ndim == 2 else image


def _examples(columns: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, example): TFDS orders by the number, as its official builders do."""
    for i in range(len(columns["label"])):
        row = {name: values[i] for name, values in columns.items()}
        yield i, {**row, "image": _png(row["image"])}


def _png(pixels: np.ndarray) -> io.BytesIO:
    from PIL import Image

    file = io.BytesIO()
    # Level 1 is fast; the images are decoded once, into the cache.
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    file.seek(0)
    return file


def _move(written: Path, target: Path) -> None:
    """Renames a finished folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(written, target)
    except OSError:
        # Another process that prepared the same set at once has written the same.
        if not target.exists():
            raise
