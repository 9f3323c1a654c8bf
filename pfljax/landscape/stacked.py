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
) -> tuple[bool, ...]:
    """Which of the models, and of `data`, are stacked over clients.

    Raises:
      ValueError: they are stacked over different numbers of clients, or there is no
        example at all.
    """
    if not len(data.examples.y):
        raise ValueError("data has no examples; give those of a client that has some")
    counts = {name: num_clients(task, params, name) for name, params in models.items()}
    counts["data"] = len(data.offset) if jnp.ndim(data.offset) else None
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
    function: Callable[[tuple[Params, ...], ClientData], Any],
    models: tuple[Params, ...],
    data: ClientData,
    is_stacked: tuple[bool, ...],
    width: int,
) -> Any:
    """`function(models, data)` of each client, stacked [C, ...].

    `is_stacked` says which of the models, and whether the data, have an axis of
    clients; the others are shared. Without any such axis this is a single call.
    """
    if not any(is_stacked):
        return function(models, data)
    spans = (data.offset, data.size)
    parts = list(zip((*models, spans), is_stacked, strict=True))
    stacked_parts = [part for part, stacked in parts if stacked]
    clients = jax.tree.leaves(stacked_parts)[0].shape[0]

    # By index, not by vmapped leaves, so that shared parts are not copied.
    def evaluate_client(k):
        *client_models, span = [
            tree.take(part, k) if stacked else part for part, stacked in parts
        ]
        return function(tuple(client_models), ClientData(data.examples, *span))

    # Chunks are made of clients with similar numbers of examples.
    work = jnp.broadcast_to(data.size, (clients,))
    return chunked_vmap.over_clients(
        evaluate_client, (jnp.arange(clients),), work, width
    )
