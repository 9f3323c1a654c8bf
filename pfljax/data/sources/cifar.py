"""The classes of CIFAR-10 and CIFAR-100, and the superclasses of the latter.

Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html. Labels are indices
into the names in alphabetical order, fine and coarse.
"""

from typing import Literal

import numpy as np

from pfljax.data.arrays import Arrays

SOURCE = "A. Krizhevsky 2009; no licence stated"
TEN = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR10 = tuple(TEN.split())
SUPERCLASSES = """
aquatic_mammals: beaver dolphin otter seal whale
fish: aquarium_fish flatfish ray shark trout
flowers: orchid poppy rose sunflower tulip
food_containers: bottle bowl can cup plate
fruit_and_vegetables: apple mushroom orange pear sweet_pepper
household_electrical_devices: clock keyboard lamp telephone television
household_furniture: bed chair couch table wardrobe
insects: bee beetle butterfly caterpillar cockroach
large_carnivores: bear leopard lion tiger wolf
large_man-made_outdoor_things: bridge castle house road skyscraper
large_natural_outdoor_scenes: cloud forest mountain plain sea
large_omnivores_and_herbivores: camel cattle chimpanzee elephant kangaroo
medium_mammals: fox porcupine possum raccoon skunk
non-insect_invertebrates: crab lobster snail spider worm
people: baby boy girl man woman
reptiles: crocodile dinosaur lizard snake turtle
small_mammals: hamster mouse rabbit shrew squirrel
trees: maple_tree oak_tree palm_tree pine_tree willow_tree
vehicles_1: bicycle bus motorcycle pickup_truck train
vehicles_2: lawn_mower rocket streetcar tank tractor
"""
COARSE_OF = {
    fine: line.split(": ")[0]
    for line in SUPERCLASSES.strip().split("\n")
    for fine in line.split(": ")[1].split()
}
CIFAR100 = tuple(sorted(COARSE_OF))
CIFAR100_COARSE = tuple(sorted(set(COARSE_OF.values())))
Labels = Literal["fine", "coarse"]


def relabel(arrays: Arrays, labels: Labels) -> Arrays:
    """Replaces the fine labels of CIFAR-100 by its 20 superclasses, if "coarse"."""
    if labels == "fine":
        return arrays
    table = np.array([CIFAR100_COARSE.index(COARSE_OF[name]) for name in CIFAR100])
    return arrays._replace(
        y=table[arrays.y].astype(np.int32),
        num_classes=len(CIFAR100_COARSE),
        class_names=CIFAR100_COARSE,
        name=f"{arrays.name}:labels=coarse",
    )
