"""Files that are cut or damaged: one line that names the file and a remedy."""

import gzip
import io
import zipfile

import numpy as np
import pytest

from pfljax.data import from_arrays
from pfljax.data.sources import cache, load, prepare, raw_archives

X, Y = np.ones((4, 2), np.float32), np.array([0, 1, 2, 0])


def check_refused(read, message, file):
    """Checks that the error is one line which has the message and names the file."""
    with pytest.raises(ValueError, match=message) as error:
        read()
    text = str(error.value)
    assert "\n" not in text
    assert str(file) in text


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def wrong_sum(file):
    """One byte of the first member's data is another."""
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)


def other_names(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("hello.txt", "hello")


def pickled(file):
    with zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    np.savez(file, **dict.fromkeys(names, np.array([{}], object)))


DAMAGES = {
    cut: "is no .npz archive, or is cut",
    wrong_sum: "Bad CRC-32",
    other_names: "it lacks '",
    pickled: "Object arrays cannot be loaded",
}


def own_npz(place):
    np.savez(place / "d.npz", x=X, y=Y)
    read = lambda: load("npz", path=str(place / "d.npz"))  # noqa: E731
    return place / "d.npz", read, "expected an .npz archive, as"


def cached(place):
    cache.write(from_arrays(X, Y, name="mnist"))
    remedy = "remove it and run: pfljax prepare mnist"
    return cache.path("mnist"), lambda: load("mnist"), remedy


def packed_cifar10(place):
    file = pack(place / "packed" / "cifar10_webp.npz")
    return file, lambda: raw_archives.read("cifar10", place), "fetch it again"


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


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("reader", [own_npz, cached, packed_cifar10])
def test_every_reader_of_archives(reader, damage, cache_dir, tmp_path):
    file, read, remedy = reader(tmp_path)
    damage(file)
    check_refused(read, f"{DAMAGES[damage]}.*{remedy}", file)


def test_a_packed_set_is_read_as_it_was_written(tmp_path):
    pack(tmp_path / "packed" / "cifar10_webp.npz")
    arrays = raw_archives.read("cifar10", tmp_path)
    assert arrays.x[arrays.y < 2].max() == 10
    assert arrays.x[arrays.y > 1].max() == 200
    for split in (0, 1):
        assert sorted(arrays.y[arrays.official == split]) == [0, 1, 2, 3]


PACKED = {
    "UnidentifiedImageError: cannot identify": {"train_webp": np.zeros(20, np.uint8)},
    "IndexError: index 4 is out of bounds": {"y_train": np.arange(5)},
    "largest label is 80, but the number of classes": {"y_test": np.arange(4) + 77},
}  # fmt: skip


@pytest.mark.parametrize("message", PACKED)
def test_packed_sets_that_do_not_fit_together(message, tmp_path):
    file = pack(tmp_path / "packed" / "cifar10_webp.npz", **PACKED[message])
    message = f"{message}.*fetch it again"
    check_refused(lambda: raw_archives.read("cifar10", tmp_path), message, file)


def idx(values, shape=None):
    """A gzipped idx file; its head may lie."""
    head = bytes([0, 0, 8, values.ndim])
    return gzip.compress(
        head + np.array(shape or values.shape, ">u4").tobytes() + values.tobytes()
    )


IMAGES = idx(np.zeros((6, 28, 28), np.uint8))
LABELS = idx(np.arange(6, dtype=np.uint8))
IDX = {
    "EOFError: Compressed file ended": IMAGES[:-9],
    r"reshape array of size 6 into shape \(6,28,28,1\)": LABELS,
    r"reshape array of size 4704 into shape \(10,28,28,1\)": idx(
        np.zeros((6, 28, 28), np.uint8), shape=(10, 28, 28)
    ),
    r"reshape array of size 384": idx(np.zeros((6, 8, 8), np.uint8)),
}


@pytest.mark.parametrize("message", IDX)
def test_idx_files(message, tmp_path):
    place = tmp_path / "mnist"
    place.mkdir()
    for prefix in ("train", "t10k"):
        (place / f"{prefix}-images-idx3-ubyte.gz").write_bytes(IMAGES)
        (place / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(LABELS)
    arrays = raw_archives.read("mnist", tmp_path)
    assert sorted(arrays.y[arrays.official == 1]) == [0, 1, 2, 3, 4, 5]
    file = place / "train-images-idx3-ubyte.gz"
    file.write_bytes(IDX[message])
    message = f"{message}.*fetch it again$"
    check_refused(lambda: raw_archives.read("mnist", tmp_path), message, file)


def test_examples_of_an_npz_are_refused_with_the_file(tmp_path):
    file = tmp_path / "d.npz"
    np.savez(file, x=X.astype(float) * 1e300, y=Y)
    message = r"x holds 1e\+300, but is stored"
    check_refused(lambda: load("npz", path=str(file)), message, file)
    np.savez(file, x=X, y=Y, x_test=X)
    message = "it has x_test, .* no other arrays than x, y, client"
    check_refused(lambda: load("npz", path=str(file)), message, file)


def test_a_version_that_tfds_has_no_more(cache_dir):
    message = r"TFDS has no data set 'mnist:1.0.0'"
    check_refused(lambda: prepare("mnist:1.0.0"), message, "mnist:1.0.0")
