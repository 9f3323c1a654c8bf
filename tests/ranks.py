"""Perceptrons with adapters of several ranks, and uploads of four clients, by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import models
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.frozen import freeze
from pfljax.simulate.architectures import link_tasks

RANKS = (1, 3, 2)  # of the three architectures; the second is the largest
PLACES = {0: [0, 3], 1: [1], 2: [2]}  # of four clients in the cohort
WEIGHTS = np.array([2.0, 5.0, 3.0, 4.0])
PATHS = ("body/layers_1/kernel", "head/kernel")


def tasks(ranks=RANKS, train="head/bias"):
    """Linked tasks with one frozen model [7] -> 6 -> 5."""

    def make(rank):
        module = models.LoRA(models.mlp(5, hidden=(6,)), rank=rank, train=train)
        task = models.task(module, (7,))
        return freeze(task, task.frozen, task.init(jax.random.key(1)))

    return link_tasks(tuple(map(make, ranks)))


def draw(task, count=None, seed=0):
    """Parameters at random, or stacks of them."""
    rng = np.random.default_rng(seed)
    lead = () if count is None else (count,)
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    return jax.tree.map(lambda s: jnp.float32(rng.normal(size=lead + s.shape)), shapes)


def uploads(methods_tasks):
    """Uploads of all clients by architecture."""
    return {
        number: draw(task, len(PLACES[number]), seed=number)
        for number, task in enumerate(methods_tasks)
    }


def cohort(mask=(1, 1, 1, 1)):
    places = {number: jnp.array(slots) for number, slots in PLACES.items()}
    return toy.cohort(mask, weight=WEIGHTS)._replace(places=places)


def by_client(sent):
    """The upload of each client in float64, by path."""
    return {
        slot: {
            path: np.float64(leaf[i]) for path, leaf in tree.paths(sent[number]).items()
        }
        for number, slots in PLACES.items()
        for i, slot in enumerate(slots)
    }


def product(params, path):
    """A B of a kernel, from arrays by path."""
    return params[f"lora_a/{path}"] @ params[f"lora_b/{path}"]
