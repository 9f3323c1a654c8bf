"""Folders of images."""

import numpy as np
import pytest
from PIL import Image

from pfljax.data import federate, load
from pfljax.data.sources import images

NAMES = ["ann/cat/0.png", "ann/dog/0.PNG", "bob/cat/1.png"]


@pytest.fixture(autouse=True)
def cached(cache_dir):
    return cache_dir


def draw(folder, name, shape=(6, 5, 3), value=0):
    pixels = np.random.default_rng(value).integers(0, 256, shape, np.uint8)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / name)
    return pixels


def test_folders_are_clients_and_classes(tmp_path, monkeypatch):
    pixels = [draw(tmp_path, name, value=i) for i, name in enumerate(NAMES)]
    draw(tmp_path, ".trash/ann/cat/9.png")
    for _ in range(2):
        arrays = load("images", path=str(tmp_path))
        np.testing.assert_array_equal(arrays.x, pixels)
        assert arrays.y.tolist() == [0, 1, 0]
        assert arrays.class_names == ("cat", "dog")
        assert arrays.client_names == ("ann", "bob")
        # The second time nothing is decoded.
        monkeypatch.setattr(images, "decode", None)
    monkeypatch.undo()


def test_an_image_that_has_changed_is_decoded_again(tmp_path):
    for name in NAMES:
        draw(tmp_path, name, (6, 5))
    first = load("images", path=str(tmp_path))
    assert first.x.shape == (3, 6, 5, 1)  # all are grey
    pixels = draw(tmp_path, NAMES[0], value=7)
    again = load("images", path=str(tmp_path), size=5)
    assert again.x.shape == (3, 5, 5, 3)
    again = load("images", path=str(tmp_path))
    np.testing.assert_array_equal(again.x[0], pixels)


def test_splits_are_kept(tmp_path):
    for part, count in (("train", 3), ("validation", 1), ("test", 2)):
        for number in range(count):
            draw(tmp_path, f"{part}/ann/cat/{number}.png", value=number)
    arrays = load("images", path=str(tmp_path))
    found = federate(arrays, "natural", num_clients=None, seed=0)
    assert [int(part.size[0]) for part in found.parts.values()] == [3, 1, 2]


@pytest.mark.parametrize(
    ("names", "shape", "message"),
    [
        ([], None, "is in no known layout of images; expected CLIENT/CLASS"),
        (["cat/0.png"], (6, 5, 3), "is in no known layout of images"),
        (["a/b/cat/0.png"], (6, 5, 3), "SPLIT is train, test, validation"),
        ([*NAMES, "stray.png"], (6, 5, 3), "stray.png is in no known layout"),
        (["train/a/c/0.png", "val/a/c/1.png"], (6, 5, 3), "val/a/c/1.png is in no kno"),
        (NAMES, (7, 5, 3), "0.png has 5 x 7 pixels, and .* 5 x 6; give size="),
        (NAMES, None, "0.png cannot be read .*; expected an image"),
    ],
)
def test_what_is_no_folder_of_images_is_refused(tmp_path, names, shape, message):
    for name in names:
        draw(tmp_path, name)
    if names and shape is None:
        (tmp_path / names[0]).write_bytes(b"none")
    elif names:
        draw(tmp_path, names[0], shape)
    with pytest.raises(ValueError, match=message):
        load("images", path=str(tmp_path))


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no folder"):
        load("images", path=str(tmp_path / "none"))


def test_pixels_that_bytes_do_not_hold_are_refused(tmp_path):
    (tmp_path / "ann/cat").mkdir(parents=True)
    wide = Image.fromarray(np.full((4, 4), 300, np.uint16))
    wide.save(tmp_path / "ann/cat/0.png")
    with pytest.raises(ValueError, match=r"0.png cannot be read .*more than 8 bits"):
        load("images", path=str(tmp_path))
