"""Data sets by name: `load` returns one, `prepare` makes one ready to load."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from pfljax.core import components, factories, requirements
from pfljax.core.ranges import AtLeastOne, BelowOne, Positive
from pfljax.data.arrays import Arrays, from_arrays
from pfljax.data.files import read_npz, reading
from pfljax.data.sources import cache, cifar, raw_archives, shakespeare
from pfljax.data.sources import tfds as prepared
from pfljax.data.sources import tiny_imagenet as imagenet
from pfljax.data.sources.characters import Alphabet
from pfljax.data.sources.csv import csv
from pfljax.data.sources.embedded import digits
from pfljax.data.sources.hdf5 import hdf5
from pfljax.data.sources.huggingface import huggingface
from pfljax.data.sources.images import images
from pfljax.data.sources.leaf import leaf
from pfljax.data.sources.parquet import parquet
from pfljax.data.sources.pfllib import pfllib
from pfljax.data.sources.synthetic import synthetic, synthetic_iid
from pfljax.data.sources.tfds import MissingDataset as MissingDataset
from pfljax.data.sources.transforms import resize, thin

NPZ = "expected an .npz archive, as np.savez writes it, with x and y"
OPTIONAL = ("client", "official", "domain")  # beside them
FILES = ("npz", "leaf", "pfllib", "csv", "parquet", "images", "huggingface", "hdf5")
NEED_NO_PREPARING = ("digits", "synthetic", "synthetic_iid", *FILES)
# Sets that TFDS does not have, and what the folder of raw files must hold.
FROM_RAW_FILES = {
    "cifar100_20k": raw_archives.PACKED["cifar100_20k"],
    "tiny_imagenet": f"the official folder {imagenet.FOLDER}",
    "shakespeare_roles": shakespeare.FILE,
}
Size = AtLeastOne | None  # pixels each way


def tfds(name: str, *, data_dir: str | Path | None = None) -> Arrays:
    """Loads an image classification set of TFDS, such as "emnist/letters".

    It looks in the cache, then for a prepared array_record set, which is read without
    TensorFlow, and then for any prepared set if TensorFlow is installed. It never
    downloads. With a `data_dir` it reads only that folder of TFDS, and caches nothing.

    Raises:
        MissingDataset: one line with the command to run.
        ValueError: TFDS has no such name, or it is not image classification.
    """
    if data_dir is not None:
        return prepared.read(name, (str(data_dir),))
    if cache.path(name).exists():
        return cache.read(name)
    # Our own folder comes before that of TFDS: `prepare` writes there.
    arrays = prepared.read(name, (str(cache.folder() / "tfds"), None))
    cache.write(arrays)
    return arrays


def mnist(*, data_dir: str | Path | None = None) -> Arrays:
    """MNIST, u8[70000, 28, 28, 1], ten classes."""
    return tfds("mnist", data_dir=data_dir)


def fashion_mnist(*, data_dir: str | Path | None = None) -> Arrays:
    """Fashion-MNIST, u8[70000, 28, 28, 1], ten classes."""
    return tfds("fashion_mnist", data_dir=data_dir)


def cifar10(*, size: Size = None, data_dir: str | Path | None = None) -> Arrays:
    """CIFAR-10, u8[60000, 32, 32, 3], ten classes; or resized to `size` x `size`."""
    return resize(tfds("cifar10", data_dir=data_dir), size)


def cifar100(
    *,
    labels: cifar.Labels = "fine",
    size: Size = None,
    data_dir: str | Path | None = None,
) -> Arrays:
    """CIFAR-100 with its 100 fine or its 20 coarse classes, in images like `cifar10`.

    SuPerFed's code has 28 x 28 pixels.
    """
    arrays = cifar.relabel(tfds("cifar100", data_dir=data_dir), labels)
    return resize(arrays, size)


def cifar100_20k(*, labels: cifar.Labels = "fine", size: Size = None) -> Arrays:
    """The first 20,000 + 5,000 images of CIFAR-100; options are those of `cifar100`."""
    arrays = cifar.relabel(_read_cache("cifar100_20k"), labels)
    return resize(arrays, size)


def tiny_imagenet(*, size: Size = None) -> Arrays:
    """Tiny-ImageNet, u8[110000, 64, 64, 3], 200 classes; val is the official test."""
    return resize(_read_cache("tiny_imagenet"), size)


def shakespeare_roles(
    *,
    stride: AtLeastOne = 1,
    min_size: AtLeastOne = 1,
    test: BelowOne = 0.2,
    alphabet: Alphabet = "leaf",
    task: Literal["classes", "tokens"] = "classes",
) -> Arrays:
    """Shakespeare's roles as clients: 80 characters, u8[N, 80], label the next one.

    See `pfljax.data.sources.shakespeare.examples`.
    """
    texts = shakespeare.read(_require_prepared("shakespeare_roles"))
    return shakespeare.examples(texts, stride, min_size, test, alphabet, task)


def emnist(*, config: str = "byclass", data_dir: str | Path | None = None) -> Arrays:
    """EMNIST in one of TFDS's splits; images are transposed, as in TFDS."""
    return tfds(f"emnist/{config}", data_dir=data_dir)


def npz(*, path: str, scale: Positive | None = None, task: str | None = None) -> Arrays:
    """Loads an .npz file with x, y and, optionally, client, official and domain.

    Args:
      path: the file.
      scale: x is divided by it, unless x are tokens; 255 by default for uint8, else 1.
      task: what the targets are, as in `from_arrays`.
    """
    file = Path(path)
    if not file.exists():
        raise ValueError(f"no file {path!r}; give path= an .npz file with x and y")
    with reading(file, NPZ):
        stored = read_npz(file, ("x", "y"), OPTIONAL, strict=True)
        domain = stored.get("domain")
        return from_arrays(
            stored["x"],
            stored["y"],
            client=stored.get("client"),
            official=stored.get("official"),
            scale=scale,
            groups=None if domain is None else {"domain": domain},
            name=file.stem,
            task=task,
        )


DATASETS: dict[str, Callable[..., Arrays]] = {
    "digits": digits,
    "synthetic": synthetic,
    "synthetic_iid": synthetic_iid,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "cifar100_20k": cifar100_20k,
    "tiny_imagenet": tiny_imagenet,
    "shakespeare_roles": shakespeare_roles,
    "emnist": emnist,
    "npz": npz,
    "leaf": leaf,
    "pfllib": pfllib,
    "csv": csv,
    "parquet": parquet,
    "images": images,
    "huggingface": huggingface,
    "hdf5": hdf5,
}


OF_ALL = ("every",)  # options that `load` takes for all data sets


def load(name: str, *, every: int = 1, **params: Any) -> Arrays:
    """Loads a data set of `DATASETS`, or any image classification set of TFDS.

    `every` = n keeps each n-th example, for a quick run on less data.
    """
    requirements.require_a("name", name, str, "that of a data set, such as 'digits'")
    choice = components.Component(name, params)
    # All other names are left to TFDS, which has hundreds.
    factory = factories.get("data set", DATASETS, name)
    factories.check("data set", choice, factory or tfds, OF_ALL)
    if factory is not None:
        made = factories.build("data set", DATASETS, choice, returns=Arrays)
        return thin(made, every)
    with _listing_names(name):
        return thin(tfds(name, **params), every)


@contextlib.contextmanager
def _listing_names(name: str) -> Iterator[None]:
    """Lists the known names in the error for a name that TFDS does not know."""
    try:
        yield
    except prepared.UnknownDataset as error:
        raise ValueError(
            f"{requirements.unknown('data set', DATASETS, name)} (image classification "
            "sets of tensorflow-datasets are known as well)"
        ) from error


def prepare(name: str, *, raw_dir: str | Path | None = None) -> Path:
    """Makes `name` ready for `load` and returns its file in the cache.

    If there is a `raw_dir`, a folder of raw archives (the environment variable
    PFLJAX_RAW_DIR by default), they are imported without network and TensorFlow.
    Otherwise tensorflow-datasets downloads the data set, which needs TensorFlow. A data
    set that is ready stays as it is, unless `raw_dir` is an argument.

    Raises:
        MissingDataset: it could not be prepared; the message says why.
        ValueError: `name` needs no preparation, or its raw files are damaged.
    """
    if name in NEED_NO_PREPARING:
        raise ValueError(f"data set {name!r} needs no preparing; load it as it is")
    # TFDS has EMNIST in divisions only, and `emnist` loads this one.
    if name == "emnist":
        name = "emnist/byclass"
    file = _file(name)
    if file.exists() and raw_dir is None:
        return file
    raw_dir = raw_dir or os.environ.get("PFLJAX_RAW_DIR")
    if raw_dir:
        _import(name, Path(raw_dir))
    elif name in FROM_RAW_FILES:
        raise MissingDataset(
            f"cannot prepare {name!r}: it is not downloaded; give raw_dir= (--raw, or "
            f"PFLJAX_RAW_DIR) a folder which holds {FROM_RAW_FILES[name]}"
        )
    else:
        home = cache.folder() / "tfds"
        with _listing_names(name):
            prepared.download(name, home)
            cache.write(prepared.read(name, (str(home),)))
    return file


def _import(name: str, raw_dir: Path) -> None:
    """Stores a data set in the cache, from its raw files."""
    try:
        if name == "shakespeare_roles":
            raw = raw_dir / shakespeare.FILE
            shakespeare.read(raw)
            with cache.replace(_file(name)) as file:
                file.write_bytes(raw.read_bytes())
        elif name == "tiny_imagenet":
            cache.write(imagenet.read(raw_dir))
        else:
            cache.write(raw_archives.read(name, raw_dir))
    except FileNotFoundError as error:
        raise MissingDataset(
            f"cannot prepare {name!r} from raw files: {error}"
        ) from error


def _file(name: str) -> Path:
    """Returns the file in the cache; of Shakespeare's roles, which has the texts."""
    if name == "shakespeare_roles":
        return cache.folder() / Path(shakespeare.FILE).name
    return cache.path(name)


def _read_cache(name: str) -> Arrays:
    _require_prepared(name)
    return cache.read(name)


def _require_prepared(name: str) -> Path:
    file = _file(name)
    if not file.exists():
        raise MissingDataset(
            f"data set {name!r} is not prepared; run: pfljax prepare {name} --raw "
            f"FOLDER, which holds {FROM_RAW_FILES[name]}"
        )
    return file
