"""One model, or models stacked over clients, distinguished by their shapes."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import ClientData, Params, Task
from pfljax.engine import chunked_vmap
from pfljax.engine.contract import first_change
from pfljax.runtime import memory

WIDTHS = (32, 16, 8, 4, 2, 1)  # models evaluated under one vmap on an accelerator


def num_clients(task: Task, params: Params, name: str) -> int | None:
    """C if `params` are those of C stacked models, None if they are one model's.

    Raises:
      ValueError: they are neither; the message calls them `name`.
    """
    expected = shapes_of_model(task)
    count = None
    first = jnp.shape(jax.tree.leaves(params)[0])
    if len(first) > jax.tree.leaves(expected)[0].ndim:
        count = first[0]
        expected = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype),
            expected,
        )
    change = first_change(expected, params)
    if change is not None:
        raise ValueError(
            f"{name} are not parameters of this task's model, of one client or stacked "
            f"over all: {change}"
        )
    return count


def find_stacked(
    task: Task,
    models: Mapping[str, Params],
    data: ClientData,
    train: ClientData | None = None,
) -> tuple[bool, ...]:
    """Which of the models, `data`, and `train` if given, are stacked over clients.

    Raises:
      ValueError: they are stacked over different numbers of clients, or there is no
        example at all.
    """
    counts = {name: num_clients(task, params, name) for name, params in models.items()}
    given = {"data": data} if train is None else {"data": data, "train": train}
    for name, examples in given.items():
        if not len(examples.examples.y):
            raise ValueError(
                f"{name} has no examples; give those of a client that has some"
            )
        counts[name] = len(examples.offset) if jnp.ndim(examples.offset) else None
    if len(set(counts.values()) - {None}) > 1:
        listed = ", ".join(f"{name} {count or 'one'}" for name, count in counts.items())
        raise ValueError(
            f"the numbers of clients differ: {listed}; stack all over the same "
            "clients, or give one model, or the data of one client"
        )
    return tuple(count is not None for count in counts.values())


def call(program: Any, arguments: tuple) -> Any:
    """The result of `program(*arguments, width)` with `width` models at a time."""
    return program(*arguments, choose_width(program, arguments))


def choose_width(program: Any, arguments: tuple) -> int:
    """1 on a CPU, which is fastest in a loop; else the greatest width that fits."""
    if jax.default_backend() == "cpu":
        return 1
    free = memory.free_bytes(1)
    for width in WIDTHS:
        # A program that was compiled here is not compiled again by the call.
        compiled = program.lower(*arguments, width).compile()
        if memory.needed_bytes(compiled) <= free:
            return width
    return 1


def mix_models(weights: Any, models: tuple[Params, ...]) -> Params:
    """The sum of n models by weights f32[n]; weight 0 leaves out even a NaN."""

    def add_terms(*leaves: Any) -> Any:
        terms = zip(weights, leaves, strict=True)
        # 0 * NaN is NaN: a model that has diverged must not reach the other end.
        return sum(jnp.where(w == 0, 0, w * leaf) for w, leaf in terms)

    return jax.tree.map(add_terms, *models)


def or_nan(model: Params, metrics: Any) -> Any:
    """`metrics`, or NaN if the model is not finite: its hits are those of class 0."""
    leaves = jax.tree.leaves(model)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, jnp.nan), metrics)


def check_whole(name: str, value: int, least: int, most: int | None = None) -> None:
    """Raises a ValueError unless `value` is a whole number in least .. most."""
    is_whole = isinstance(value, int | np.integer)
    if not is_whole or value < least or (most is not None and value > most):
        bound = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} is {value}, expected a whole number, {bound}")


def over_models(
    function: Callable[..., Any],
    parts: tuple[Any, ...],
    is_stacked: tuple[bool, ...],
    width: int,
) -> Any:
    """`function(*parts)` of each client, stacked [C, ...].

    The parts are models, examples (`ClientData`) or None. `is_stacked` says which of
    them have an axis of clients; the others are shared. Without any such axis this is a
    single call.
    """
    if not any(is_stacked):
        return function(*parts)

    # By index, not by vmapped leaves, so that shared parts are not copied.
    def take_client(k: Any) -> list[Any]:
        each = zip(parts, is_stacked, strict=True)
        return [_take(part, k) if stacked else part for part, stacked in each]

    first = parts[is_stacked.index(True)]
    leaf = first.size if isinstance(first, ClientData) else jax.tree.leaves(first)[0]
    # Chunks are made of clients with similar numbers of examples.
    data = next(part for part in parts if isinstance(part, ClientData))
    work = jnp.broadcast_to(data.size, (len(leaf),))
    return chunked_vmap.over_clients(
        lambda k: function(*take_client(k)), (jnp.arange(len(leaf)),), work, width
    )


def _take(part: Any, k: Any) -> Any:
    """The part of one client; all clients' examples lie in one pool."""
    if not isinstance(part, ClientData):
        return tree.take(part, k)
    return ClientData(part.examples, *tree.take(part[1:], k))
