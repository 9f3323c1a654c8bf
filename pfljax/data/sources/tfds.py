"""Data sets of tensorflow-datasets: read, built from raw archives, or downloaded.

The array_record format is read and written without TensorFlow. `tensorflow_datasets` is
imported by the functions that need it.
"""

import contextlib
import importlib.util
import io
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.sources import cifar, raw_archives

BATCH = 1000  # records read at once
NAME = re.compile(r"[A-Za-z]\w*(/[\w.\-]+)?(:[\w.*]+)?")  # set/config:version

SOURCES = {
    "mnist": "Y. LeCun, C. Cortes, C. Burges; CC BY-SA 3.0",
    "fashion_mnist": "Xiao et al. 2017, arXiv 1708.07747; MIT",
    "cifar10": cifar.SOURCE,
    "cifar100": cifar.SOURCE,
    "emnist": "Cohen et al. 2017, arXiv 1702.05373; no licence stated",
}


class MissingDataset(RuntimeError):  # noqa: N818
    """The data set is not on this machine; the message has the command to run."""


class UnknownDataset(ValueError):  # noqa: N818
    """tensorflow-datasets has no data set of this name."""


def read(name: str, data_dirs: Sequence[str | None]) -> Arrays:
    """Reads the data set of the first folder that has it; None is TFDS's own."""
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


def build(name: str, home: Path, raw_dir: Path | None, again: bool) -> None:
    """Builds the set below `home`, from the raw archives or else from a download.

    One that is there stays, unless it is to be built `again`.
    """
    import tensorflow_datasets as tfds

    builder = _builder(name, str(home), file_format="array_record")
    if builder.info.splits and not again:
        return
    config = tfds.download.DownloadConfig()
    if raw_dir is not None:
        columns, class_names = _read_raw(name, raw_dir)
        shutil.rmtree(builder.data_dir, ignore_errors=True)
        builder = _builder(name, str(home), file_format="array_record")
        for feature, names in class_names.items():
            builder.info.features[feature].names = list(names)
        generators = {split: _examples(each) for split, each in columns.items()}
        # The builder would download: it gets the columns that were read instead.
        builder._split_generators = lambda *_, **__: generators
        config.try_download_gcs = False
        config.compute_stats = tfds.download.ComputeStatsMode.SKIP
    elif not importlib.util.find_spec("tensorflow"):
        raise MissingDataset(
            f"cannot prepare {name!r}: give raw_dir= (or PFLJAX_RAW_DIR) a folder of "
            "raw archives, or install TensorFlow to download it: "
            "pip install 'pfljax[prepare]'"
        )
    tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare(download_config=config)
    except OSError as error:
        raise MissingDataset(
            f"cannot prepare {name!r} in {home} ({type(error).__name__}: {error}); is "
            "there a network, or room? Else give raw_dir= a folder of raw archives"
        ) from error


def _read_raw(name: str, raw_dir: Path) -> Any:
    try:
        return raw_archives.read(name, raw_dir)
    except FileNotFoundError as error:
        raise MissingDataset(
            f"cannot prepare {name!r} from raw archives: {error}"
        ) from error


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


def _examples(columns: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number, example); TFDS orders by the number, as official builders do."""
    for i in range(len(columns["label"])):
        example = {name: values[i] for name, values in columns.items()}
        yield i, {**example, "image": _png(example["image"])}


def _png(pixels: np.ndarray) -> io.BytesIO:
    from PIL import Image

    file = io.BytesIO()
    # Level 1 is fast; the images are decoded once, into the cache.
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    file.seek(0)
    return file
