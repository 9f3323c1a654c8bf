"""Models whose kernels are made of factors of a low rank.

`LoRA` adds a product of factors to each kernel, which is frozen. `FedPara` puts two
products in the place of each kernel. Factors are trees beside the parts of the model,
with the paths of its kernels: `lora_b/body/layers_1/kernel`.

A kernel of several axes is a matrix of inputs and outputs. That of a convolution, [h,
w, inputs, outputs], has h w inputs rows. That of an attention, [inputs, heads, d], has
heads d columns.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from pfljax.core import leaves, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.frozen import TAKE_PARAMETERS
from pfljax.core.keys import derive
from pfljax.core.server_model import map_argument
from pfljax.core.types import Array, Key, Params, Task
from pfljax.models.kernel_layout import outputs_first

PROJECTIONS = {"query", "key", "value"}


class Adapted(nn.Module):
    """A module of the zoo or your own, to which `models.task` adds factors.

    On its own it computes what the `model` computes.
    """

    model: nn.Module
    where: str = "*/kernel"  # names of kernels (`core.leaves`), with spaces between

    def __call__(self, x: Array) -> Array:
        """Computes logits of x without any factors."""
        return self.model(x)


class LoRA(Adapted):
    """W + scale A B: Hu et al., ICLR 2022, https://arxiv.org/abs/2106.09685.

    A [inputs, rank] is uniform in +-1/sqrt(inputs) and B [rank, outputs] is zero, so
    that the first model is the wrapped one. `scale` is the paper's alpha / rank. All
    leaves of the wrapped model are frozen, except for those that `train` names.
    """

    rank: int = 4
    scale: float = 2.0
    train: str = ""


class FedPara(Adapted):
    """(X1 Y1) * (X2 Y2): Hyeon-Woo et al., ICLR 2022, https://arxiv.org/abs/2108.06098.

    The products are multiplied by element. If `personal`, it is (X1 Y1) * (X2 Y2 + 1),
    pFedPara's form. The rank r lies between r_min = ceil(sqrt(min(m, n))), from which
    on a kernel m x n can have full rank, and r_max = m n / 2 (m + n), at which factors
    are as many numbers as the kernel: ceil((1 - gamma) r_min + gamma r_max). A factor
    is drawn from N(0, 2 / its longer axis). A convolution is a matrix here, where the
    paper has factors for its axes.
    """

    gamma: float = 0.5
    personal: bool = True


class Kernel(NamedTuple):
    """A kernel as a matrix."""

    path: tuple[str, ...]
    shape: tuple[int, ...]
    inputs: int
    outputs: int
    is_transposed: bool  # stored as [outputs, inputs]

    def restore(self, matrix: Array) -> Array:
        """The matrix [inputs, outputs] in the kernel's shape."""
        return (matrix.T if self.is_transposed else matrix).reshape(self.shape)


class Factors(NamedTuple):
    """The factors of each kernel, and what they make of it."""

    kernels: Sequence[Kernel]
    draw: Mapping[str, Callable[[Key, Kernel], Array]]  # by name
    combine: Callable[..., Array]  # of the factors in this order: [inputs, outputs]
    added: bool  # to the kernel; otherwise they take its place


def adapt(module: Adapted, task: Task) -> Task:
    """The task of the wrapped model with factors.

    Raises:
      ValueError: a name matches no kernel, or the rank is above a kernel's sides.
    """
    kernels = find_kernels(module, task)
    if isinstance(module, FedPara):
        return with_factors(task, fedpara_factors(module, kernels))
    assert isinstance(module, LoRA)
    for kernel in kernels:
        most = min(kernel.inputs, kernel.outputs)
        if module.rank > most:
            raise ValueError(
                f"LoRA: rank is {module.rank}, but {'/'.join(kernel.path)} has the "
                f"sides {kernel.inputs} and {kernel.outputs}; give at most {most}, or "
                "leave it out by `where`"
            )
    adapted = with_factors(task, lora_factors(module, kernels))
    trained = leaves.patterns("LoRA: train", module.train.split(), [task])
    base = jax.tree.map(lambda is_trained: not is_trained, leaves.choose(task, trained))
    frozen = jax.tree.map(lambda _: False, adapted.groups) | base
    return adapted._replace(frozen=frozen)


def find_kernels(module: Adapted, task: Task) -> list[Kernel]:
    """The kernels of the task that `where` names.

    Raises:
      ValueError: a name matches none.
    """
    shapes = tree.paths(shapes_of_model(task))
    transposed = outputs_first(module.model)
    owner = type(module).__name__
    kernels = {}
    for name in module.where.split():
        patterns = leaves.patterns(f"{owner}: where", [name], [task])
        matched = {p: s.shape for p, s in shapes.items() if leaves.matches(p, patterns)}
        wide = {p: s for p, s in matched.items() if len(s) > 1 and "bias" not in p}
        if not wide:
            raise ValueError(
                f"{owner}: where has {name!r}, which matches no kernel, but "
                f"{', '.join(matched)}; name kernels, such as */kernel"
            )
        for path, shape in wide.items():
            kernels[path] = _as_matrix(path, shape, path in transposed)
    return list(kernels.values())


def _as_matrix(path: str, shape: tuple[int, ...], is_transposed: bool) -> Kernel:
    names = tuple(path.split("/"))
    # Flax's attention has [inputs, heads, d] there; all others have outputs last.
    split = 1 if {*names} & PROJECTIONS else len(shape) - 1
    rows, columns = math.prod(shape[:split]), math.prod(shape[split:])
    inputs, outputs = (columns, rows) if is_transposed else (rows, columns)
    return Kernel(names, shape, inputs, outputs, is_transposed)


def lora_factors(module: LoRA, kernels: Sequence[Kernel]) -> Factors:
    """A and B, whose scaled product is added to the kernel."""

    def draw_a(key: Key, kernel: Kernel) -> Array:
        bound = kernel.inputs**-0.5
        shape = kernel.inputs, module.rank
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

    def draw_b(key: Key, kernel: Kernel) -> Array:
        return jnp.zeros((module.rank, kernel.outputs))

    def combine(a: Array, b: Array) -> Array:
        return module.scale * _product(a, b)

    a, b = leaves.FACTORS
    draw = {a: draw_a, b: draw_b}
    return Factors(kernels, draw, combine, added=True)


def fedpara_factors(module: FedPara, kernels: Sequence[Kernel]) -> Factors:
    """The factors of two products, which take the kernel's place."""

    def rank(kernel: Kernel) -> int:
        m, n = kernel.inputs, kernel.outputs
        least, most = math.ceil(min(m, n) ** 0.5), m * n // (2 * (m + n))
        return max(1, math.ceil((1 - module.gamma) * least + module.gamma * most))

    def draw_x(key: Key, kernel: Kernel) -> Array:
        deviation = (2 / kernel.inputs) ** 0.5
        return deviation * jax.random.normal(key, (kernel.inputs, rank(kernel)))

    def draw_y(key: Key, kernel: Kernel) -> Array:
        deviation = (2 / kernel.outputs) ** 0.5
        return deviation * jax.random.normal(key, (rank(kernel), kernel.outputs))

    def combine(x1: Array, y1: Array, x2: Array, y2: Array) -> Array:
        return _product(x1, y1) * (_product(x2, y2) + float(module.personal))

    draw = {"x1": draw_x, "y1": draw_y, "x2": draw_x, "y2": draw_y}
    return Factors(kernels, draw, combine, added=False)


# In float32, whatever the precision of the model and the device.
_product = partial(jnp.matmul, precision="highest")


def with_factors(task: Task, factors: Factors) -> Task:
    """The task, whose parameters have factors of kernels."""

    def label(labels: Params) -> Params:
        flat = flatten_dict(labels)
        same = {kernel.path: flat[kernel.path] for kernel in factors.kernels}
        return _extend(factors, labels, lambda name: same)

    def init(key: Key) -> Params:
        draw = partial(_draw, factors, key)
        return _extend(factors, task.init(key), draw)

    merge = partial(_merge, factors)
    functions = {
        name: map_argument(getattr(task, name), 0, merge) for name in TAKE_PARAMETERS
    }
    return task._replace(
        init=init,
        groups=label(task.groups),
        modules=label(task.modules),
        wrapped=task,
        complete=merge,
        units=None,
        resized=None,
        **functions,
    )


def _extend(
    factors: Factors, base: Params, beside: Callable[[str], Mapping[Any, Any]]
) -> Params:
    """The parts of a model and, beside them, its factors by name and path."""
    flat = flatten_dict(base)
    if not factors.added:
        paths = {kernel.path for kernel in factors.kernels}
        flat = {path: leaf for path, leaf in flat.items() if path not in paths}
    drawn = {name: unflatten_dict(beside(name)) for name in factors.draw}
    return unflatten_dict(flat) | drawn


def _draw(factors: Factors, key: Key, name: str) -> dict[Any, Array]:
    """The first factors of this name, by path."""
    draw, of_name = factors.draw[name], derive(key, name)
    return {
        kernel.path: draw(jax.random.fold_in(of_name, i), kernel)
        for i, kernel in enumerate(factors.kernels)
    }


def _merge(factors: Factors, params: Params) -> Params:
    """The parameters of the wrapped model, whose kernels are made of factors."""
    parts = {name: params[name] for name in params if name not in factors.draw}
    flat: dict[Any, Any] = dict(flatten_dict(parts))
    by_name = [flatten_dict(params[name]) for name in factors.draw]
    for kernel in factors.kernels:
        matrix = factors.combine(*(each[kernel.path] for each in by_name))
        made = kernel.restore(matrix)
        flat[kernel.path] = flat[kernel.path] + made if factors.added else made
    return unflatten_dict(flat)
