"""Data sets that TFDS does not have: from raw files straight into the cache."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pfljax.data.arrays import Arrays, from_arrays
from pfljax.data.sources import cache, raw_archives, shakespeare, tiny_imagenet
from pfljax.data.sources.cifar import CIFAR100
from pfljax.data.sources.tfds import SOURCES, MissingDataset

CIFAR100_20K = "cifar100_20k"


def _store_cifar100_20k(raw_dir: Path) -> Path:
    """The first 20,000 + 5,000 images of CIFAR-100 in their order, fine labels."""
    file = raw_archives.first(raw_dir / "packed", "cifar100_20k5k_webp.npz")
    # Train and test, in the order of OFFICIAL_NAMES.
    parts = list(raw_archives.cifar(file, len(CIFAR100)).values())
    size = [len(part["label"]) for part in parts]
    arrays = from_arrays(
        np.concatenate([part["image"] for part in parts]),
        np.concatenate([part["label"] for part in parts]),
        official=np.repeat(range(len(parts)), size),
        num_classes=len(CIFAR100),
        name=CIFAR100_20K,
        source=SOURCES["cifar100"],
        class_names=CIFAR100,
    )
    return cache.write(arrays)


def _store_tiny_imagenet(raw_dir: Path) -> Path:
    return cache.write(tiny_imagenet.read(raw_dir))


def _store_roles(raw_dir: Path) -> Path:
    """The texts of Shakespeare's roles as JSON; rows are cut when they are loaded."""
    text = json.dumps(shakespeare.read(raw_dir)).encode()
    return cache.store(shakespeare.NAME, {"json": np.frombuffer(text, np.uint8)})


# How each is made, and what the folder of raw files must hold.
STORES: dict[str, tuple[Callable[[Path], Path], str]] = {
    CIFAR100_20K: (_store_cifar100_20k, "packed/cifar100_20k5k_webp.npz"),
    shakespeare.NAME: (_store_roles, shakespeare.FILE),
    tiny_imagenet.NAME: (
        _store_tiny_imagenet,
        f"the official folder {tiny_imagenet.FOLDER}",
    ),
}


def check(name: str) -> None:
    """MissingDataset, in one line with the command to run, unless `name` is stored."""
    if not cache.path(name).exists():
        raise MissingDataset(
            f"data set {name!r} is not prepared; run: pfljax prepare {name} --raw "
            f"FOLDER, which holds {STORES[name][1]}"
        )


def read(name: str) -> Arrays:
    """The stored images `name`."""
    check(name)
    return cache.read(name)


def texts() -> dict[str, str]:
    """The stored texts of Shakespeare's roles, by role in sorted order."""
    check(shakespeare.NAME)
    with cache.opened(shakespeare.NAME, "json") as stored:
        text_of_role = shakespeare.parsed(stored["json"].tobytes())
    return dict(sorted(text_of_role.items()))


def prepare(name: str, raw_dir: str | Path | None) -> Path:
    """The file of `name` in the cache, made from the raw files below `raw_dir`.

    Raises:
        MissingDataset: no folder is given, or it lacks a file.
        ValueError: a file is damaged or of another layout.
    """
    store, expected = STORES[name]
    if not raw_dir:
        raise MissingDataset(
            f"cannot prepare {name!r}: it is not downloaded; give raw_dir= (--raw, or "
            f"PFLJAX_RAW_DIR) a folder which holds {expected}"
        )
    try:
        return store(Path(raw_dir))
    except FileNotFoundError as error:
        raise MissingDataset(
            f"cannot prepare {name!r} from raw files: {error}; it needs a folder which "
            f"holds {expected}"
        ) from error
