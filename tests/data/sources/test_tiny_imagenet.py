"""Tiny-ImageNet: a small folder of the official layout, written by the test."""

import numpy as np
import pytest
from PIL import Image

from pfljax.data import MissingDataset, load, prepare

WNIDS = ["n02124075", "n01443537", "n07749582"]  # not in sorted order, as official
WORDS = ["Egyptian cat", "goldfish, Carassius auratus", "lemon"]
BOX = "\t0\t0\t62\t62"


def picture(seed, grey=False):
    """A smooth picture: JPEG keeps it within a few grey values."""
    place = np.linspace(0, 1, 64)
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(40, 120, (3, 1 if grey else 3))
    x = c + a * place[:, None, None] + 0.2 * b * place[None, :, None]
    return np.round(x).astype(np.uint8)


def save(file, pixels, kind="JPEG"):
    file.parent.mkdir(parents=True, exist_ok=True)
    options = {"quality": 98, "subsampling": 0} if kind == "JPEG" else {}
    Image.fromarray(pixels.squeeze()).save(file, kind, **options)


@pytest.fixture
def folder(cache_dir, tmp_path):
    """Three classes of two pictures to train on, three to test; one is grey."""
    home = tmp_path / "raw" / "tiny-imagenet-200"
    for k, wnid in enumerate(WNIDS):
        for i in range(2):
            file = home / "train" / wnid / "images" / f"{wnid}_{i}.JPEG"
            save(file, picture([k, i], grey=(k, i) == (2, 1)))
    for k in range(3):
        save(home / "val" / "images" / f"val_{k}.JPEG", picture([k, 9]), "PNG")
    lines = [f"val_{k}.JPEG\t{WNIDS[k]}{BOX}" for k in (2, 0, 1)]
    (home / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (home / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    words = [f"{w}\t{name}" for w, name in zip(WNIDS, WORDS, strict=True)]
    (home / "words.txt").write_text("n00001740\tentity\n" + "\n".join(words))
    save(home / "test" / "images" / "test_0.JPEG", picture(7))
    return home


def test_the_official_folder_is_a_data_set(folder):
    file = prepare("tiny_imagenet", raw_dir=folder.parent)
    assert file.is_file()
    found = load("tiny_imagenet")
    assert found.x.shape == (9, 64, 64, 3)
    assert found.x.dtype == np.uint8
    assert found.official.tolist() == [0] * 6 + [1] * 3
    names = ["goldfish, Carassius auratus", "Egyptian cat", "lemon"]  # by WNID
    assert list(found.class_names) == names
    assert found.y.tolist() == [0, 0, 1, 1, 2, 2, 2, 1, 0]
    made = [[1, 0], [1, 1], [0, 0], [0, 1], [2, 0]]
    for row, seed in zip(found.x, made, strict=False):
        assert np.abs(row.astype(int) - picture(seed)).max() <= 4
    grey = found.x[5]
    assert np.abs(grey.astype(int) - picture([2, 1], grey=True)).max() <= 4
    assert (grey == grey[..., :1]).all()
    for row, k in zip(found.x[6:], (2, 0, 1), strict=True):
        np.testing.assert_array_equal(row, picture([k, 9]))  # PNG by its content


def test_it_is_decoded_once_and_resized(folder):
    prepare("tiny_imagenet", raw_dir=folder.parent)
    for file in folder.rglob("*.JPEG"):
        file.unlink()
    assert load("tiny_imagenet", size=32).x.shape == (9, 32, 32, 3)
    with pytest.raises(MissingDataset, match=r"^cannot prepare .*no \*.JPEG in"):
        prepare("tiny_imagenet", raw_dir=folder.parent)
    assert load("tiny_imagenet").x.shape == (9, 64, 64, 3)


def test_it_is_not_downloaded(cache_dir):
    message = r"pfljax prepare tiny_imagenet --raw FOLDER, which holds the official"
    with pytest.raises(MissingDataset, match=message):
        load("tiny_imagenet")
    with pytest.raises(MissingDataset, match=r"not downloaded; give raw_dir="):
        prepare("tiny_imagenet")


def _truncate(file):
    file.write_bytes(file.read_bytes()[:300])


TRAIN, VAL = "train/n01443537/images/n01443537_0.JPEG", "val/val_annotations.txt"
BAD = [
    ("wnids.txt", lambda file: file.unlink(), r"No such file.*wnids.txt"),
    (
        "wnids.txt",
        lambda file: file.write_text("\n"),
        r"wnids.txt cannot be .*lines of 1 field",
    ),
    (
        "words.txt",
        lambda file: file.write_text("cat"),
        r"words.txt .*lines of 2 fields",
    ),
    (TRAIN, _truncate, r"n01443537_0.JPEG cannot be read"),
    (
        TRAIN,
        lambda file: save(file, picture(0)[:, :32]),
        r"cannot be read .cannot reshape",
    ),
    ("val/images/val_1.JPEG", lambda file: file.unlink(), r"No such.*val_1.JPEG"),
    (
        VAL,
        lambda file: file.write_text(f"a.JPEG\tn1{BOX}"),
        r"cannot be read .'n1' is not in",
    ),
]


@pytest.mark.parametrize(("name", "spoil", "message"), BAD)
def test_a_bad_folder_is_one_line(folder, name, spoil, message):
    spoil(folder / name)
    with pytest.raises((ValueError, MissingDataset), match=message) as error:
        prepare("tiny_imagenet", raw_dir=folder.parent)
    assert "\n" not in str(error.value)
