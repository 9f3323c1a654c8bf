"""CIFAR-100: names, superclasses, and its first 20,000 + 5,000 images."""

import io

import numpy as np
import pytest
from PIL import Image

from pfljax.data import MissingDataset, from_arrays, load, prepare
from pfljax.data.sources import cifar

COARSE_OF = {
    "apple": "fruit_and_vegetables",
    "boy": "people",
    "crab": "non-insect_invertebrates",
    "lawn_mower": "vehicles_2",
    "leopard": "large_carnivores",
    "mouse": "small_mammals",
    "pickup_truck": "vehicles_1",
    "ray": "fish",
    "sea": "large_natural_outdoor_scenes",
    "skyscraper": "large_man-made_outdoor_things",
    "whale": "aquatic_mammals",
    "worm": "non-insect_invertebrates",
}


def packed(raw, images, fine, coarse, name="cifar100_20k5k_webp.npz"):
    """A packed file in small: the last image is test, the others train."""
    (raw / "packed").mkdir(parents=True)
    held = {}
    for split, span in (("train", slice(0, -1)), ("test", slice(-1, None))):
        file = io.BytesIO()
        strip = images[span].reshape(-1, 32, 3)
        Image.fromarray(strip).save(file, "WEBP", lossless=True, exact=True)
        held[f"{split}_webp"] = np.frombuffer(file.getvalue(), np.uint8)
        held[f"{split}_offsets"] = [0, len(file.getvalue())]
        held[f"y_{split}"], held[f"coarse_{split}"] = fine[span], coarse[span]
    np.savez(raw / "packed" / name, **held)


@pytest.fixture
def small(cache_dir, tmp_path):
    """(images, fine labels) of a small data set, prepared."""
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    fine = np.array([0, 99, 50, 11])  # apple, worm, mouse, boy
    packed(tmp_path / "raw", images, fine, np.zeros(4, int))
    assert prepare("cifar100_20k", raw_dir=tmp_path / "raw").is_file()
    return images, fine


def test_a_hundred_classes_are_five_of_each_of_twenty():
    assert len(cifar.CIFAR100) == 100
    assert cifar.CIFAR100[50] == "mouse"
    assert len(cifar.CIFAR100_COARSE) == 20
    counts = [list(cifar.COARSE_OF.values()).count(c) for c in cifar.CIFAR100_COARSE]
    assert counts == [5] * 20


def test_a_coarse_label_is_the_superclass_of_the_fine_one():
    names = list(COARSE_OF)
    fine = np.array([cifar.CIFAR100.index(name) for name in names])
    given = {"num_classes": 100, "class_names": cifar.CIFAR100, "name": "cifar100"}
    arrays = from_arrays(np.zeros((len(fine), 1)), fine, **given)
    found = cifar.relabel(arrays, "coarse")
    assert [found.class_names[y] for y in found.y] == list(COARSE_OF.values())
    assert (found.num_classes, found.y.dtype) == (20, np.int32)
    assert found.name == "cifar100:labels=coarse"
    assert cifar.relabel(arrays, "fine") is arrays
    with pytest.raises(ValueError, match="labels is 'rough'; expected 'fine' or 'co"):
        load("cifar100", labels="rough")


def test_cifar100_has_either_labels(cache_dir, tmp_path):
    """The raw archive and the cache hold fine labels."""
    images = np.random.default_rng(1).integers(0, 256, (4, 32, 32, 3), np.uint8)
    names = ["bear", "worm", "ray", "sea"]
    fine = np.array([cifar.CIFAR100.index(name) for name in names])
    classes = ["large_carnivores", *(COARSE_OF[name] for name in names[1:])]
    coarse = np.array([cifar.CIFAR100_COARSE.index(name) for name in classes])
    packed(tmp_path / "raw", images, fine, coarse, "cifar100_webp.npz")
    prepare("cifar100", raw_dir=tmp_path / "raw")
    found = load("cifar100")
    order = [names.index(found.class_names[y]) for y in found.y]
    assert sorted(order[:3]) == [0, 1, 2]  # TFDS has an order of its own
    np.testing.assert_array_equal(found.x, images[order])
    found = load("cifar100", labels="coarse", size=8)
    assert found.x.shape == (4, 8, 8, 3)
    assert [found.class_names[y] for y in found.y] == [classes[i] for i in order]


def test_the_packed_part_is_a_data_set_of_its_own(small):
    images, fine = small
    found = load("cifar100_20k")
    np.testing.assert_array_equal(found.x, images)
    np.testing.assert_array_equal(found.y, fine)
    assert found.official.tolist() == [0, 0, 0, 1]
    assert (found.num_classes, found.class_names[99]) == (100, "worm")
    coarse = load("cifar100_20k", labels="coarse", size=28)
    assert coarse.x.shape == (4, 28, 28, 3)
    assert coarse.class_names[coarse.y[3]] == "people"


def test_the_part_does_not_pass_for_the_whole(small, tmp_path):
    with pytest.raises(MissingDataset, match=r"No such file.*cifar100_webp.npz"):
        prepare("cifar100", raw_dir=tmp_path / "raw")


def test_a_missing_part_is_one_line(cache_dir, tmp_path):
    message = (
        r"^data set 'cifar100_20k' is not prepared; run: pfljax prepare cifar100_20k "
        r"--raw FOLDER, which holds packed/cifar100_20k5k_webp.npz$"
    )
    with pytest.raises(MissingDataset, match=message):
        load("cifar100_20k")
    with pytest.raises(MissingDataset, match=r"^cannot prepare .*it is not downloaded"):
        prepare("cifar100_20k")
    with pytest.raises(MissingDataset, match=r"^cannot prepare .*/cifar100_20k5k"):
        prepare("cifar100_20k", raw_dir=tmp_path)


def test_the_superclasses_are_those_of_the_real_labels(raw_dir):
    file = raw_dir / "packed" / "cifar100_20k5k_webp.npz"
    if not file.is_file():
        pytest.skip(f"no {file}")
    with np.load(file) as stored:
        fine = np.concatenate([stored["y_train"], stored["y_test"]])
        coarse = np.concatenate([stored["coarse_train"], stored["coarse_test"]])
    assert (len(fine), len(np.unique(fine))) == (25_000, 100)
    arrays = from_arrays(np.zeros((len(fine), 1), np.uint8), fine)
    np.testing.assert_array_equal(cifar.relabel(arrays, "coarse").y, coarse)
