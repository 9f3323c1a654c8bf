"""Data sets by name: `load` returns one, `prepare` makes one ready to load."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pfljax import registry
from pfljax.data.arrays import Arrays, from_arrays
from pfljax.data.sources import archives, cache, cifar, imported, shakespeare
from pfljax.data.sources import tfds as prepared
from pfljax.data.sources.embedded import digits
from pfljax.data.sources.leaf import leaf
from pfljax.data.sources.synthetic import synthetic, synthetic_iid
from pfljax.data.sources.tfds import MissingDataset as MissingDataset
from pfljax.data.sources.transforms import resized, thinned

NPZ = "expected an .npz archive, as np.savez writes it, with x and y"
NEED_NO_PREPARING = ("digits", "synthetic", "synthetic_iid", "npz", "leaf")


def tfds(name: str, *, data_dir: str | Path | None = None) -> Arrays:
    """An image classification set of tensorflow-datasets, as "emnist/letters".

    Looks in the cache, then for a prepared array_record set (read without TensorFlow),
    then, where TensorFlow is installed, for any prepared set; never downloads. With a
    `data_dir` only that TFDS folder is read, and nothing is cached.

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


def cifar10(*, size: int | None = None, data_dir: str | Path | None = None) -> Arrays:
    """CIFAR-10, u8[60000, 32, 32, 3], ten classes; or of `size` x `size` pixels."""
    return resized(tfds("cifar10", data_dir=data_dir), size)


def cifar100(
    *,
    labels: str = "fine",
    size: int | None = None,
    data_dir: str | Path | None = None,
) -> Arrays:
    """CIFAR-100 by its 100 fine classes or its 20 "coarse" ones, as `cifar10`.

    SuPerFed's code has 28 x 28 pixels.
    """
    arrays = cifar.labelled(tfds("cifar100", data_dir=data_dir), labels)
    return resized(arrays, size)


def cifar100_20k(*, labels: str = "fine", size: int | None = None) -> Arrays:
    """The first 20,000 + 5,000 images of CIFAR-100, as `cifar100`."""
    return resized(cifar.labelled(imported.read("cifar100_20k"), labels), size)


def tiny_imagenet(*, size: int | None = None) -> Arrays:
    """Tiny-ImageNet, u8[110000, 64, 64, 3], 200 classes; val is the official test."""
    return resized(imported.read("tiny_imagenet"), size)


def shakespeare_roles(
    *, stride: int = 1, min_rows: int = 1, test: float = 0.2, alphabet: str = "leaf"
) -> Arrays:
    """Shakespeare's roles as clients: 80 characters, u8[N, 80], and the next as label.

    See `pfljax.data.sources.shakespeare.rows`.
    """
    return shakespeare.rows(imported.texts(), stride, min_rows, test, alphabet)


def emnist(*, config: str = "byclass", data_dir: str | Path | None = None) -> Arrays:
    """EMNIST in one of TFDS's divisions; images are transposed, as TFDS has them."""
    return tfds(f"emnist/{config}", data_dir=data_dir)


def npz(*, path: str) -> Arrays:
    """Arrays from an .npz file with x, y and, if wanted, client and official."""
    file = Path(path)
    if not file.is_file():
        came = f"no file {path!r}"
        if file.exists():
            came = f"{path!r} is no file, but a folder, a pipe or a device"
        raise ValueError(f"{came}; give path= an .npz file with x and y")
    optional = ("client", "official")
    with archives.opened(file, ("x", "y"), optional, mend=NPZ, alone=True) as stored:
        return from_arrays(
            stored["x"],
            stored["y"],
            client=stored.get("client"),
            official=stored.get("official"),
            name=file.stem,
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
}


OF_ALL = ("every",)  # options that `load` takes of every data set


def load(name: str, *, every: int = 1, **params: Any) -> Arrays:
    """The data set `name`: of `DATASETS`, or any image classification set of TFDS.

    Of all of them `every` = n keeps each n-th row: less data for a quick run.
    """
    return thinned(_whole(name, params), every)


def _whole(name: str, params: dict[str, Any]) -> Arrays:
    registry.require_a("name", name, str, "that of a data set, such as 'digits'")
    choice = registry.choose(name, **params)
    if name in DATASETS:
        registry.check("data set", choice, DATASETS[name], OF_ALL)
        return DATASETS[name](**params)
    # Every other name is left to TFDS, which has hundreds.
    registry.check("data set", choice, tfds, OF_ALL)
    with _known_names(name):
        return tfds(name, **params)


@contextlib.contextmanager
def _known_names(name: str) -> Iterator[None]:
    """A name that TFDS does not know is an error that lists the known ones."""
    try:
        yield
    except prepared.UnknownDataset as error:
        raise ValueError(
            f"{registry.unknown('data set', DATASETS, name)}; others: the image "
            "classification sets of tensorflow-datasets"
        ) from error


def prepare(name: str, *, raw_dir: str | Path | None = None) -> Path:
    """Makes `name` ready for `load` and returns its file in the cache.

    With `raw_dir` (default: the environment variable PFLJAX_RAW_DIR), a folder of raw
    archives, it imports them without network and without TensorFlow; else it downloads
    with tensorflow-datasets, which needs TensorFlow, what TFDS has. What is ready is
    left as it is, but a `raw_dir` given here is imported again.

    Raises:
        MissingDataset: one line that says why it could not be prepared.
        ValueError: `name` needs no preparing, or its raw files are damaged.
    """
    if name in NEED_NO_PREPARING:
        raise ValueError(f"data set {name!r} needs no preparing; load it as it is")
    # TFDS has EMNIST in divisions only, and `emnist` loads this one.
    if name == "emnist":
        name = "emnist/byclass"
    file = cache.path(name)
    if file.exists() and raw_dir is None:
        return file
    # A folder from the environment is no reason to import anew, an argument is.
    raw_given = raw_dir is not None
    raw_dir = raw_dir or os.environ.get("PFLJAX_RAW_DIR")
    if name in imported.STORES:
        return imported.prepare(name, raw_dir)
    home = cache.folder() / "tfds"
    with _known_names(name):
        if raw_given or not prepared.exists(name, str(home)):
            _build(name, raw_dir, home)
        return cache.write(prepared.read(name, (str(home),)))


def _build(name: str, raw_dir: str | Path | None, home: Path) -> None:
    """The data set below `home`, from raw archives or downloaded."""
    if not raw_dir:
        return prepared.download(name, home)
    if not Path(raw_dir).is_dir():
        raise MissingDataset(
            f"cannot prepare {name!r} from raw archives: {raw_dir} is not a folder"
        )
    return prepared.build_from_raw(name, Path(raw_dir), home)
