"""Files of data that were once answered badly, damaged as their name says."""

import gzip
import io
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from abuse import data_files
from abuse.values import Input

ROUNDS = "--rounds 2 --eval-every 2 --epochs 1 --out {T}/r"
NPZ = (
    "run --dataset npz:path={T}/d.npz --partition iid --clients 5 --cohort 3 " + ROUNDS
)
LEAF = (
    "run --dataset leaf:path={T}/leaf%s --partition natural --clients None --cohort 2 "
    "--test-from official_own --validation 0 " + ROUNDS
)
CACHE = "run --dataset mnist --epochs 1 --out {T}/r"


def _idx(shape: tuple[int, ...], values: bytes, rank: int | None = None) -> bytes:
    """A packed file such as MNIST's; `rank`, unless None, is not that of its shape."""
    rank = len(shape) if rank is None else rank
    head = bytes([0, 0, 8, rank]) + np.array(shape, ">u4").tobytes()
    return gzip.compress(head + values, mtime=0)


LABELS = data_files.good_idx("labels-idx1")
IMAGES = "train-images-idx3-ubyte.gz"
LABEL = "train-labels-idx1-ubyte.gz"
MNIST: dict[str, tuple[str, bytes | None]] = {  # None is a folder
    "cut": (IMAGES, data_files.good_idx("images-idx3")[:-40]),
    "empty": (IMAGES, b""),
    "emptygz": (IMAGES, gzip.compress(b"")),
    "short": (IMAGES, gzip.compress(b"\0\0\x08")),
    "notgz": (IMAGES, b"hello"),
    "wrongrank": (IMAGES, LABELS),
    "dims": (IMAGES, _idx((10**6, 10**6, 10**6), bytes(100))),
    "rank255": (IMAGES, _idx((60, 28, 28), bytes(60 * 28 * 28), rank=255)),
    "fewerlabels": (LABEL, _idx((5,), bytes(5))),
    "label77": (LABEL, _idx((60,), bytes([77] * 60))),
    "crc": (LABEL, LABELS[:-8] + b"\1\2\3\4" + LABELS[-4:]),
    "dir": (LABEL, None),
}
PACKED = {
    "cifar10": "cifar10_webp.npz",
    "cifar100_20k": "cifar100_20k5k_webp.npz",
}
OF_PACKED = ("empty", "cut", "otherzip", "npy", "junk", "pickle", "badwebp")
OF_NPZ = ("empty", "cut", "cutend", "npy", "crc", "junk", "pickle", "text")


def table() -> Iterator[Input]:
    """All of them."""
    for damage, (file, content) in MNIST.items():
        path = f"raw/mnist/{file}"
        yield _input(
            f"prep-mnist-{damage}", "prepare mnist --raw {T}/raw", path, content, file
        )
    for dataset, file in PACKED.items():
        for damage in OF_PACKED:
            content = _damaged(damage, _packed())
            line = f"prepare {dataset} --raw {{T}}/raw"
            name = f"prep-{dataset}-{damage}"
            yield _input(name, line, f"raw/packed/{file}", content, file)
    for damage in OF_NPZ:
        content = _damaged(damage, data_files.good_npz())
        yield _input(f"npz-{damage}", NPZ, "d.npz", content, "d.npz")
    caches = {
        "npy": data_files.npy(),
        "about": data_files.good_cache(about=[1]),
        "aboutkey": data_files.good_cache(about=data_files.ABOUT | {"foo": 3}),
    }
    for damage, content in caches.items():
        name = "data/mnist.npz"
        yield _input(f"cache-{damage}", CACHE, name, content, "mnist.npz")
    yield from _leaves()


def _leaves() -> Iterator[Input]:
    good = data_files.GOOD
    twice = good | {"users": ["a", "a", "b"]}
    million = data_files.WRONG_LEAF["y of a million"]
    contents = {
        "leaf-userdup": json.dumps(twice),
        "leaf-ybig": json.dumps(million),
        "leaf-classes0": json.dumps(good),
        "leaf-deep": "[" * 100_000,
    }
    for name, content in contents.items():
        zero = name == "leaf-classes0"
        line = LEAF % (",classes=0" if zero else "")
        answer = "classes" if zero else "leaf"
        yield _input(name, line, "leaf/train/a.json", content.encode(), answer)


def _input(name: str, line: str, file: str, content: bytes | None, word: str) -> Input:
    """A command on good files but for one."""

    def make(place: Path) -> None:
        kind = "raw" if "/mnist/" in file else line.partition(":")[0].split()[-1]
        data_files.surround(kind, place)
        path = place / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)

    words = tuple(shlex.split(line))
    return Input(f"found {name}", words, names=(word,), make=make)


def _damaged(damage: str, good: bytes) -> bytes:
    """An archive that is damaged so."""
    contents = {
        "empty": b"",
        "cut": good[: len(good) // 2],
        "cutend": good[:-1],
        "npy": data_files.npy(),
        "otherzip": data_files.npz(z=np.arange(3)),
        "junk": bytes(range(1, 256)) * 4,
        "text": b"hello\n",
        "pickle": data_files.npz(
            x=np.array([{}], object), y=np.array([None]), y_train=np.array([None])
        ),
        "crc": good[:200] + bytes([good[200] ^ 1]) + good[201:],
        "badwebp": good,
    }
    return contents[damage]


def _packed() -> bytes:
    """A packed CIFAR of strips that are no pictures."""
    columns = {}
    for split in ("train", "test"):
        columns[f"y_{split}"] = np.arange(4)
        columns[f"{split}_webp"] = np.zeros(9, np.uint8)
        columns[f"{split}_offsets"] = np.array([0, 9])
    file = io.BytesIO()
    np.savez(file, **columns)
    return file.getvalue()
