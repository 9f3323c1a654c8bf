"""Raw archives in a folder: the idx files of MNIST, packed WebP strips of CIFAR."""

import gzip
import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Columns = dict[str, Any]  # values of each feature, [N, ...]
PREFIX = {"train": "train", "test": "t10k"}
CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach
couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster
house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket
rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip
turtle wardrobe whale willow_tree wolf woman worm"""
CIFAR100_COARSE = """
aquatic_mammals fish flowers food_containers fruit_and_vegetables
household_electrical_devices household_furniture insects large_carnivores
large_man-made_outdoor_things large_natural_outdoor_scenes
large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles
small_mammals trees vehicles_1 vehicles_2"""


def read(
    name: str, raw_dir: Path
) -> tuple[dict[str, Columns], dict[str, tuple[str, ...]]]:
    """({split: columns}, {feature: class names}) of the data set `name`.

    Expects raw_dir/mnist/*.gz, raw_dir/fashion_mnist/*.gz,
    raw_dir/packed/cifar10_webp.npz or raw_dir/packed/cifar100*_webp.npz.

    Raises:
        FileNotFoundError: says which file was expected, or which names are known.
    """
    if name in ("mnist", "fashion_mnist"):
        return {split: _idx_split(raw_dir / name, split) for split in PREFIX}, {}
    if name == "cifar10":
        file = _first(raw_dir / "packed", "cifar10_webp.npz")
        return _cifar(file), {"label": tuple(CIFAR10.split())}
    if name == "cifar100":
        file = _first(raw_dir / "packed", "cifar100*_webp.npz")
        return _cifar(file), {
            "label": tuple(CIFAR100.split()),
            "coarse_label": tuple(CIFAR100_COARSE.split()),
        }
    raise FileNotFoundError(
        "raw archives are known for mnist, fashion_mnist, cifar10 and cifar100 only"
    )


def _idx_split(folder: Path, split: str) -> Columns:
    stem = folder / PREFIX[split]
    image = _idx(Path(f"{stem}-images-idx3-ubyte.gz"))
    return {"image": image, "label": _idx(Path(f"{stem}-labels-idx1-ubyte.gz"))}


def _idx(file: Path) -> np.ndarray:
    """u8[N, ...] of a gzipped idx file: 0, 0, 8, rank, big-endian sizes, bytes."""
    data = gzip.decompress(_first(file.parent, file.name).read_bytes())
    rank = data[3]
    if data[:3] != b"\x00\x00\x08":
        raise ValueError(f"{file} is not an idx file of unsigned bytes")
    shape = np.frombuffer(data, ">u4", rank, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _cifar(file: Path) -> dict[str, Columns]:
    columns: dict[str, Columns] = {}
    with np.load(file) as stored:
        for split in PREFIX:
            label = stored[f"y_{split}"]
            columns[split] = {
                "id": [f"{split}_{i:05d}" for i in range(len(label))],
                "image": _webp(
                    stored[f"{split}_webp"], stored[f"{split}_offsets"], len(label)
                ),
                "label": label,
            }
            if f"coarse_{split}" in stored.files:
                columns[split]["coarse_label"] = stored[f"coarse_{split}"]
    return columns


def _webp(strips: np.ndarray, offsets: np.ndarray, count: int) -> np.ndarray:
    """u8[count, 32, 32, 3]: strip i is bytes offsets_i .. offsets_i+1, many images."""
    from PIL import Image

    images = [
        np.asarray(Image.open(io.BytesIO(strips[a:b].tobytes())).convert("RGB"))
        for a, b in pairwise(offsets)
    ]
    return np.concatenate([strip.reshape(-1, 32, 32, 3) for strip in images])[:count]


def _first(folder: Path, pattern: str) -> Path:
    """The first file of `folder` that matches, by name."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"no {pattern} in {folder}")
    return found[0]
