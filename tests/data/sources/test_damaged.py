"""Files that are cut, empty, foreign or damaged: one line that names the file."""

import gzip
import io
import json
import os
import zipfile

import numpy as np
import pytest

from pfljax.data import from_arrays
from pfljax.data.sources import cache, load, prepare, raw_archives

X, Y = np.ones((4, 2), np.float32), np.array([0, 1, 2, 0])


def told(error, file):
    """The message, one line of bearable length that names the file."""
    text = str(error.value)
    assert "\n" not in text
    assert str(file) in text
    assert len(text.replace(str(file), "")) < 350
    return text


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def cut_end(file):
    file.write_bytes(file.read_bytes()[:-30])


def cut_start(file):
    file.write_bytes(file.read_bytes()[30:])


def empty(file):
    file.write_bytes(b"")


def text(file):
    file.write_text("hello, I am no archive")


def folder(file):
    file.unlink()
    file.mkdir()


def pipe(file):
    file.unlink()
    os.mkfifo(file)


def npy(file):
    with file.open("wb") as stream:
        np.save(stream, X)


def wrong_sum(file):
    """One byte of the first member's data is another."""
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)


def foreign(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("hello.txt", "hello")


def bytes_inside(file):
    """Members of the right names that are no arrays."""
    names = archive_names(file)
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "hello")


def pickled(file):
    names = archive_names(file)
    objects = np.array([{}], object)
    np.savez(file, **{name.removesuffix(".npy"): objects for name in names})


def huge(file):
    """A head that tells of more than any memory."""
    names = archive_names(file)
    head = io.BytesIO()
    shape = {"descr": "<f4", "fortran_order": False, "shape": (2**50,)}
    np.lib.format.write_array_header_1_0(head, shape)
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, head.getvalue())


def archive_names(file):
    with zipfile.ZipFile(file) as archive:
        return archive.namelist()


DAMAGES = {
    cut: "is no .npz archive, or is cut",
    cut_start: "is no .npz archive, or is cut",
    cut_end: "is no .npz archive, or is cut",
    empty: "is no .npz archive, or is cut",
    text: "is no .npz archive, or is cut",
    npy: "is no .npz archive, or is cut",
    wrong_sum: "Bad CRC-32",
    foreign: "it lacks '",
    bytes_inside: "is no array",
    pickled: "Object arrays cannot be loaded",
    huge: "MemoryError",
}


def npz_of_ones_own(place):
    file = place / "d.npz"
    np.savez(file, x=X, y=Y)
    return file, lambda: load("npz", path=str(file)), "expected an .npz archive, as"


def cached(place):
    cache.write(from_arrays(X, Y, name="mnist"))
    again = "remove it and run: pfljax prepare mnist"
    return cache.path("mnist"), lambda: load("mnist"), again


def packed_cifar10(place):
    file = pack(place / "packed" / "cifar10_webp.npz")
    return file, lambda: raw_archives.read("cifar10", place), "fetch it again"


def packed_cifar100_20k(place):
    file = pack(place / "packed" / "cifar100_20k5k_webp.npz")
    return file, lambda: prepare("cifar100_20k", raw_dir=place), "fetch it again"


def pack(file, **changes):
    """A packed CIFAR of four images a split, in two strips."""
    from PIL import Image

    strips = []
    for value in (10, 200):
        stream = io.BytesIO()
        strip = Image.new("RGB", (32, 64), (value, 0, 0))
        strip.save(stream, "WEBP", lossless=True)
        strips.append(np.frombuffer(stream.getvalue(), np.uint8))
    columns = {}
    for split in ("train", "test"):
        columns[f"y_{split}"] = np.arange(4)
        columns[f"{split}_webp"] = np.concatenate(strips)
        columns[f"{split}_offsets"] = np.cumsum([0, *map(len, strips)])
    file.parent.mkdir(exist_ok=True)
    np.savez(file, **columns | changes)
    return file


READERS = (npz_of_ones_own, cached, packed_cifar10, packed_cifar100_20k)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_archives(reader, damage, cache_dir, tmp_path):
    file, read, mend = reader(tmp_path)
    damage(file)
    with pytest.raises(ValueError, match=DAMAGES[damage]) as error:
        read()
    assert told(error, file).endswith(mend) or mend in str(error.value)


@pytest.mark.parametrize("kind", [folder, pipe])
@pytest.mark.parametrize("reader", [npz_of_ones_own, packed_cifar10])
def test_what_is_no_file_is_not_read(reader, kind, tmp_path):
    file, read, _ = reader(tmp_path)
    kind(file)
    with pytest.raises(ValueError, match=r"no file|a folder or a pipe") as error:
        read()
    told(error, file)


def test_a_packed_set_is_read_as_it_was_written(tmp_path):
    columns, _ = raw_archives.read(
        "cifar10", pack(tmp_path / "packed" / "cifar10_webp.npz").parent.parent
    )
    assert columns["train"]["image"][:, 0, 0, 0].tolist() == [10, 10, 200, 200]
    assert columns["test"]["label"].tolist() == [0, 1, 2, 3]


PACKED = {
    "webp": ({"train_webp": np.zeros(20, np.uint8)}, "its offsets are no spans"),
    "bad-webp": (
        {"train_webp": np.zeros(9, np.uint8), "train_offsets": np.array([0, 9])},
        "a picture cannot be decoded",
    ),
    "rank": (
        {"train_webp": np.zeros((90, 90), np.uint8)}, r"pictures are uint8\[90, 90\]",
    ),
    "offsets": ({"test_offsets": np.array([9, 3])}, "its offsets are no spans"),
    "offsets-float": ({"test_offsets": np.array([0.0])}, r"offsets are float64\[1\]"),
    "few": ({"y_train": np.arange(5)}, "it has 5 labels for 4 images"),
    "labels": ({"y_test": np.arange(4) + 77}, "labels are from 77 to 80; expected"),
    "labels-float": ({"y_test": np.arange(4.0)}, r"labels are float64\[4\]"),
    "labels-none": ({"y_test": np.arange(0)}, "it has 0 labels for 0 images"),
    "coarse": ({"coarse_train": np.arange(3)}, "it has 3 labels for 4 images"),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
def test_packed_sets_that_do_not_fit_together(name, tmp_path):
    changes, message = PACKED[name]
    file = pack(tmp_path / "packed" / "cifar10_webp.npz", **changes)
    with pytest.raises(ValueError, match=f"{message}.*fetch it again") as error:
        raw_archives.read("cifar10", tmp_path)
    told(error, file)


def idx(values, rank=None, shape=None):
    """A gzipped idx file; its head may lie."""
    head = bytes([0, 0, 8, values.ndim if rank is None else rank])
    return gzip.compress(
        head + np.array(shape or values.shape, ">u4").tobytes() + values.tobytes()
    )


IMAGES = idx(np.zeros((6, 28, 28), np.uint8))
LABELS = idx(np.arange(6, dtype=np.uint8))
IMAGE_FILE, LABEL_FILE = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
IDX = {
    "cut": (IMAGE_FILE, IMAGES[:-9], "it is no whole gzip file"),
    "empty": (IMAGE_FILE, b"", "it is no idx file of unsigned bytes in 3 dimensions"),
    "emptygz": (LABEL_FILE, gzip.compress(b""), "it is no idx file of unsigned bytes"),
    "short": (LABEL_FILE, gzip.compress(b"\0\0\x08\x01\0"), "it is no idx file"),
    "notgz": (LABEL_FILE, b"hello", "it is no whole gzip file"),
    "sum": (IMAGE_FILE, IMAGES[:-8] + bytes(8), "it is no whole gzip file: CRC"),
    "wrongrank": (IMAGE_FILE, LABELS, "no idx file of unsigned bytes in 3 dimensions"),
    "rank255": (LABEL_FILE, idx(np.zeros(6, np.uint8), 255), "it is no idx file of"),
    "dims": (
        IMAGE_FILE, idx(np.zeros((6, 28, 28), np.uint8), shape=(10**6,) * 3),
        r"its head says \[1000000, 1000000, 1000000\], but it holds 4704 bytes",
    ),
    "size": (IMAGE_FILE, idx(np.zeros((6, 8, 8), np.uint8)), r"are \[8, 8\], no"),
    "fewerlabels": (LABEL_FILE, idx(np.zeros(5, np.uint8)), "it has 5 labels for 6"),
    "label77": (LABEL_FILE, idx(np.full(6, 77, np.uint8)), "labels are from 77 to"),
}  # fmt: skip


@pytest.mark.parametrize("name", IDX)
def test_idx_files(name, tmp_path):
    damaged, content, message = IDX[name]
    place = tmp_path / "mnist"
    place.mkdir()
    for prefix in ("train", "t10k"):
        (place / f"{prefix}-images-idx3-ubyte.gz").write_bytes(IMAGES)
        (place / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(LABELS)
    columns, _ = raw_archives.read("mnist", tmp_path)
    assert columns["test"]["label"].tolist() == [0, 1, 2, 3, 4, 5]
    (place / damaged).write_bytes(content)
    with pytest.raises(ValueError, match=f"{message}.*fetch it again$") as error:
        raw_archives.read("mnist", tmp_path)
    told(error, place / damaged)


ABOUT = {"num_classes": 3, "name": "mnist", "source": "s", "class_names": ["a"] * 3}


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ([1], "its 'about' is of another layout"),
        (ABOUT | {"foo": 1}, "its 'about' is of another layout"),
        (ABOUT | {"name": "cifar10"}, "it holds the data set 'cifar10'"),
        (ABOUT | {"num_classes": "3"}, "num_classes is '3'; expected a whole number"),
        (ABOUT | {"class_names": None} | {"num_classes": 2}, "choose num_classes >= 3"),
    ],
)
def test_what_a_cached_file_says_of_itself(about, message, cache_dir):
    columns = {"x": X, "y": Y, "official": Y * 0, "about": np.array(json.dumps(about))}
    cache.store("mnist", columns)
    with pytest.raises(ValueError, match=f"{message}.*pfljax prepare mnist$") as error:
        load("mnist")
    told(error, cache.path("mnist"))


def test_rows_of_an_npz_are_told_with_the_file(tmp_path):
    file = tmp_path / "d.npz"
    np.savez(file, x=X.astype(float) * 1e300, y=Y)
    with pytest.raises(ValueError, match=r"x holds 1e\+300, but is kept") as error:
        load("npz", path=str(file))
    told(error, file)


def test_a_version_that_tfds_has_no_more(cache_dir):
    with pytest.raises(
        ValueError, match=r"TFDS has no data set 'mnist:1.0.0'"
    ) as error:
        prepare("mnist:1.0.0")
    told(error, "mnist:1.0.0")


def test_an_array_that_nobody_reads_is_told(tmp_path):
    rows = {"x": np.zeros((6, 3)), "y": np.arange(6) % 2}
    np.savez(tmp_path / "mine.npz", **rows, x_test=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="it has 'x_test', which nobody reads, besid"):
        load("npz", path=str(tmp_path / "mine.npz"))
