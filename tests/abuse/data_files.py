"""Damaged files of data: archives, LEAF folders, raw archives, caches, configs."""

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from abuse.values import BASE, Input, flags

Damage = Callable[[Path, bytes], object]
# What may have happened to a file: from its path and its good bytes.
DAMAGES: dict[str, Damage] = {
    "missing": lambda path, good: None,
    "empty": lambda path, good: path.write_bytes(b""),
    "cut": lambda path, good: path.write_bytes(good[: len(good) // 2]),
    "cut at the end": lambda path, good: path.write_bytes(good[:-1]),
    "cut at the start": lambda path, good: path.write_bytes(good[1:]),
    "zeros": lambda path, good: path.write_bytes(bytes(len(good))),
    "junk": lambda path, good: path.write_bytes(bytes(range(1, 256)) * 4),
    "text": lambda path, good: path.write_text("hello\n"),
    "[]": lambda path, good: path.write_text("[]"),
    "{}": lambda path, good: path.write_text("{}"),
    "null": lambda path, good: path.write_text("null"),
    "3": lambda path, good: path.write_text("3"),
    "deep": lambda path, good: path.write_text("[" * 100_000),
    "a folder": lambda path, good: path.mkdir(),
    "a link to itself": lambda path, good: path.symlink_to(path),
    "a pipe": lambda path, good: os.mkfifo(path),
    "an .npy": lambda path, good: path.write_bytes(npy()),
    "another .npz": lambda path, good: path.write_bytes(npz(z=np.arange(3))),
    "an .npz of objects": lambda path, good: path.write_bytes(
        npz(x=np.array([{}], object), y=np.array([None]))
    ),
}
# What a cache says of itself.
ABOUT = {"num_classes": 10, "name": "mnist", "source": "", "class_names": None}
NPZ = "npz:path={T}/d.npz"
LEAF = "leaf:path={T}/leaf"
OF_LEAF = {"partition": "natural", "clients": "None", "test_from": "official_own"}


def table() -> Iterator[Input]:
    """Every damage of every kind of file."""
    for damage in DAMAGES:
        yield _input("npz", damage, "d.npz", _data({"dataset": NPZ}), good_npz())
        leaf = _data({"dataset": LEAF, "cohort": 2} | OF_LEAF)
        yield _input("leaf", damage, "leaf/train/a.json", leaf, _good_leaf())
        cached = _data({"dataset": "mnist"})
        yield _input("cache", damage, "data/mnist.npz", cached, good_cache())
        config = ("run", "--config={T}/c.json")
        yield _input("config", damage, "c.json", config, b"")
        for name in ("images-idx3", "labels-idx1"):
            file = f"raw/mnist/train-{name}-ubyte.gz"
            prepare = ("prepare", "mnist", "--raw={T}/raw")
            yield _input(f"raw {name}", damage, file, prepare, good_idx(name))
    for name, bad in WRONG_LEAF.items():
        leaf = _data({"dataset": LEAF, "cohort": 2} | OF_LEAF)
        good = json.dumps(bad).encode()
        given = _input("leaf", f"with {name}", "leaf/train/a.json", leaf, good)
        yield given


def _data(settings: dict) -> tuple[str, ...]:
    return ("run", *flags(BASE | settings))


def _input(
    kind: str, damage: str, file: str, args: tuple[str, ...], good: bytes
) -> Input:
    def make(place: Path) -> None:
        surround(kind, place)
        path = place / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.unlink()
        DAMAGES.get(damage, lambda path, good: path.write_bytes(good))(path, good)

    parts = Path(file).parts
    names = (parts[-1], f"/{parts[0]} ", "prepare")
    return Input(f"{kind}: {file} is {damage}", args, names=names, make=make)


def surround(kind: str, place: Path) -> None:
    """The other files that belong to the damaged one."""
    if kind == "leaf":
        (place / "leaf" / "train").mkdir(parents=True)
        (place / "leaf" / "test").mkdir(parents=True)
        (place / "leaf" / "test" / "a.json").write_bytes(_good_leaf())
    if kind.startswith("raw"):
        folder = place / "raw" / "mnist"
        folder.mkdir(parents=True)
        for part in ("train", "t10k"):
            for name in ("images-idx3", "labels-idx1"):
                (folder / f"{part}-{name}-ubyte.gz").write_bytes(good_idx(name))


def npy() -> bytes:
    """An array by itself."""
    file = io.BytesIO()
    np.save(file, np.arange(3))
    return file.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    """An archive of arrays, of objects too."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=True)
    return file.getvalue()


def good_npz() -> bytes:
    """Rows of one's own."""
    rows = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    return npz(x=rows, y=np.arange(120) % 3)


def good_cache(about: object = ABOUT) -> bytes:
    """A cache of MNIST, right but for what it says of itself."""
    draw = np.random.default_rng(0)
    return npz(
        x=draw.integers(0, 256, (300, 28, 28, 1), dtype=np.uint8),
        y=np.arange(300) % 10,
        official=np.zeros(300, np.uint8),
        about=np.array(json.dumps(about)),
    )


def _leaf(rows: int = 12) -> dict:
    draw = np.random.default_rng(0)
    users = ["a", "b", "c"]
    of_user = {
        user: {
            "x": draw.normal(size=(rows, 4)).round(3).tolist(),
            "y": [i % 3 for i in range(rows)],
        }
        for user in users
    }
    return {"users": users, "num_samples": [rows] * 3, "user_data": of_user}


def _good_leaf() -> bytes:
    return json.dumps(_leaf()).encode()


def good_idx(name: str) -> bytes:
    """One of the raw archives of MNIST, of 60 rows."""
    shape = (60, 28, 28) if name.startswith("images") else (60,)
    values = np.arange(np.prod(shape)).reshape(shape) % 10
    head = bytes([0, 0, 8, values.ndim]) + np.array(shape, ">u4").tobytes()
    return gzip.compress(head + values.astype(np.uint8).tobytes(), mtime=0)


GOOD = _leaf()
ONE = GOOD["user_data"]["a"]
WRONG_LEAF = {
    "a user twice": GOOD | {"users": ["a", "a", "b"]},
    "users a number": GOOD | {"users": 3},
    "users none": GOOD | {"users": []},
    "a user without rows": GOOD | {"user_data": {"a": {"x": [], "y": []}}},
    "user_data a list": GOOD | {"user_data": []},
    "x of other length": GOOD | {"user_data": GOOD["user_data"] | {"a": {
        "x": ONE["x"][:-1], "y": ONE["y"]}}},
    "x ragged": GOOD | {"user_data": GOOD["user_data"] | {"a": {
        "x": [[1.0], [1.0, 2.0]], "y": [0, 1]}}},
    "x text": GOOD | {"user_data": GOOD["user_data"] | {"a": {
        "x": ["u", "v"], "y": [0, 1]}}},
    "x null": GOOD | {"user_data": GOOD["user_data"] | {"a": {
        "x": None, "y": [0, 1]}}},
    "y of a million": GOOD | {"user_data": GOOD["user_data"] | {"a": {
        "x": ONE["x"], "y": [10**6] * 12}}},
    "y negative": GOOD | {"user_data": GOOD["user_data"] | {"a": {
        "x": ONE["x"], "y": [-1] * 12}}},
    "y fractional": GOOD | {"user_data": GOOD["user_data"] | {"a": {
        "x": ONE["x"], "y": [0.5] * 12}}},
    "no users": {"user_data": GOOD["user_data"]},
}  # fmt: skip
