"""The cost of a round for a client from shapes alone: floats sent and FLOPs of a step.

Nothing runs. Floats are those of the leaves of message and upload. Shapes are static,
so tables by class have an entry and a count for every class, also for classes that the
client lacks. `formula` evaluates the paper's symbols for the same models, and `extras`
is what is sent here in addition.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from products import product_flops
from protocol import EVERY, PROTOCOL, Column, column, experiment_of, models

from pfljax import models as zoo
from pfljax.channel import count_traffic
from pfljax.core import communication, tree
from pfljax.core.types import Algorithm, Task
from pfljax.simulate import components, methods, training
from pfljax.simulate.shape import Shape

BYTES = 4  # of a float
NOISE = 32  # numbers that FedGen's generator is given
Group = tuple[Task, Algorithm]


class Floats(NamedTuple):
    """Numbers that one client sends and is sent in a round."""

    up: float
    down: float


def shape_of(problem: Column, num_classes: int, pixels: int) -> Shape:
    """The shape of a federation of colour images, without its data."""
    return Shape(
        num_clients=problem.experiment.clients or 20,
        input_shape=(pixels, pixels, 3),
        num_classes=num_classes,
        scale=255.0,
    )


def groups_of(label: str, num_classes: int = 100, pixels: int = 32) -> list[Group]:
    """(task, method) of each of the five architectures at paper scale."""
    problem = column("cifar100", "pathological")
    experiment = experiment_of(problem, label, small=False).replace(devices=1)
    shape = shape_of(problem, num_classes, pixels)
    tasks = components.make_tasks(experiment, shape)
    local = training.make_local(experiment)
    name = experiment.algorithm.name
    options = experiment.algorithm.options
    # Not by `make_setting`, which compares all architectures first.
    return [(task, methods.build(name, task, local, options)) for task in tasks]


def floats(groups: list[Group], clients: int = 20, pixels: int = 32) -> list[Floats]:
    """What a client of each architecture sends, from the leaves."""
    found = []
    for task, algorithm in groups:
        of_row = (pixels, pixels, 3)
        sent = count_traffic(algorithm, task, clients, of_row)
        found.append(Floats(up=sent.up / BYTES, down=sent.down / BYTES))
    return found


def sizes(num_classes: int, features: int = 1000, pixels: int = 32) -> dict[str, int]:
    """The paper's symbols: parameters of the shared head, the adapter, the meme."""
    names = models("htcnn_akt", equal_heads=False, small=False)
    equal = models("htcnn_akt", equal_heads=True, small=False)
    body, head = min((parts(name, num_classes, pixels) for name in names), key=sum)
    _, shared = parts(equal[0], num_classes, pixels)
    return {
        "adapter": body,
        "meme": body + head,
        "head": shared,
        "features": features,
        "classes": num_classes,
    }


def parts(name: str, num_classes: int, pixels: int = 32) -> tuple[int, int]:
    """Parameters of the body and of the head of a model."""
    choice = PROTOCOL.replace(model=name).model
    network = zoo.model(choice.name, num_classes, **choice.options)
    task = zoo.task(network, (pixels, pixels, 3))
    key: Any = jax.eval_shape(jax.random.key, 0)
    params = jax.eval_shape(task.init, key)
    body = tree.split(params, tree.matches(task.groups, "body"))[0]
    inside = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(body))
    whole = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    return inside, whole - inside


def formula(label: str, size: dict[str, int], held: int) -> Floats:
    """What the paper says of a client that holds `held` classes; FedKD at r = 1."""
    classes, features = size["classes"], size["features"]
    generator = generator_size(classes, features)
    table = {
        "Standalone": (0, 0),
        "LG-FedAvg": (size["head"], size["head"]),
        "FedGen": (size["head"], size["head"] + generator),
        "FML": (size["meme"], size["meme"]),
        "FedKD": (size["meme"], size["meme"]),
        "FedDistill": (held * classes, classes * classes),
        "FedProto": (held * features, classes * features),
        "FedAKT": (size["adapter"], size["adapter"]),
        "FedTGP": (held * features, classes * features),
        "FedGH": (held * features, size["head"]),
    }
    return Floats(*table[label])


def generator_size(classes: int, features: int) -> int:
    """Parameters of FedGen's generator.

    Its first layer has no bias here: the batch's mean is taken off behind it.
    """
    hidden = int(EVERY["FedGen"].hyper["hidden"])
    first = (NOISE + classes) * hidden
    return first + 2 * hidden + hidden * features + features


def extras(label: str, classes: int) -> Floats:
    """What is sent here beyond the formula where all classes are held: counts."""
    table = {
        "FedGen": (classes, classes),  # rows of each label; labels that G knows
        "FedKD": (0, 1),  # the bytes of the last change
        "FedDistill": (classes, classes),
        "FedProto": (classes, classes),
        "FedTGP": (classes, 0),
        "FedGH": (classes, 0),
    }
    return Floats(*table.get(label, (0, 0)))


class StepFlops(NamedTuple):
    """FLOPs of one local step on a batch."""

    products: int  # of products and convolutions in the traced step
    xla: float  # of all operations, by XLA's account of the lowered step


def step_flops(groups: list[Group], pixels: int = 32) -> Iterator[StepFlops]:
    """FLOPs of one local step on a batch, of each architecture.

    With the making of the message, and a batch of the second pass over the rows where a
    method has one. A loop within a step counts once.
    """
    key: Any = jax.eval_shape(jax.random.key, 0)
    for task, algorithm in groups:
        data = communication.shapes_of_client(task, (pixels, pixels, 3))

        def one_step(key, data, task=task, algorithm=algorithm):
            server, client, turn = communication.first_turn(
                algorithm, task, 20, key, data
            )
            message = algorithm.message(turn, server, client)
            turn = turn._replace(steps=jnp.int32(1))
            return algorithm.train(turn, message, client, data)

        account = jax.jit(one_step).lower(key, data).cost_analysis()
        yield StepFlops(product_flops(one_step, key, data), account["flops"])
