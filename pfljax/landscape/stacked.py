"""Models that come one, or stacked over clients: known by shape, judged in chunks."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import ClientData, Params, Task
from pfljax.engine import chunked_vmap
from pfljax.runtime import memory

WIDTHS = (32, 16, 8, 4, 2, 1)  # models judged under one vmap on an accelerator


def num_clients(task: Task, params: Params, name: str) -> int | None:
    """C if `params` are those of C stacked models, None if they are one model's.

    Raises:
      ValueError: they are neither; `name` is what the message calls them.
    """
    expected = tree.paths(shapes_of_model(task))
    leaves = tree.paths(params)
    if list(expected) != list(leaves):
        raise ValueError(
            f"{name} has the leaves {', '.join(leaves) or 'none'}, expected "
            f"{', '.join(expected)}; give parameters of this task's model"
        )
    # The first leaf says whether there is an axis of clients; all others must agree.
    first = next(iter(expected))
    extra_axes = jnp.ndim(leaves[first]) - expected[first].ndim
    client_axis = jnp.shape(leaves[first])[:1] if extra_axes == 1 else ()
    for path, one_model in expected.items():
        shape = jnp.shape(leaves[path])
        if shape != (*client_axis, *one_model.shape):
            raise ValueError(
                f"{name} has shape {shape} at {path}, expected "
                f"{one_model.shape} of one model, or that behind one axis C, the same "
                "at every leaf, of stacked models; give parameters of this task's model"
            )
    return client_axis[0] if client_axis else None


def find_stacked(
    task: Task,
    models: Mapping[str, Params],
    data: ClientData,
) -> tuple[bool, ...]:
    """Which of the models, and of `data`, are stacked over clients.

    Raises:
      ValueError: they are stacked over different numbers of clients, or there is no
        row at all.
    """
    offsets = jnp.shape(data.offset)
    sizes = jnp.shape(data.size)
    if offsets != sizes or len(offsets) > 1:
        raise ValueError(
            f"offset and size of the data have shapes {offsets} and {sizes}, expected "
            "both () for one client or (C,) for C; give a ClientData of either"
        )
    if not len(data.examples.y):
        raise ValueError("data has no rows; give those of a client that has some")
    counts = {name: num_clients(task, params, name) for name, params in models.items()}
    counts["data"] = offsets[0] if offsets else None
    different = set(counts.values()) - {None}
    if len(different) > 1:
        listed = ", ".join(f"{name} {count or 'one'}" for name, count in counts.items())
        raise ValueError(
            f"the numbers of clients differ: {listed}; stack all over the same "
            "clients, or give one model, or one client's rows (landscape.pooled makes "
            "them)"
        )
    return tuple(count is not None for count in counts.values())


def call(program: Any, arguments: tuple, chunk: int | None) -> Any:
    """`program(*arguments, width)` of a jitted program, `width` models at once.

    It is `chunk`; if that is None, 1 on a CPU, which is fastest in a loop, else what
    fits into memory.

    Raises:
      ValueError: `chunk` is not a positive whole number.
    """
    if chunk is None:
        on_cpu = jax.default_backend() == "cpu"
        chunk = 1 if on_cpu else widest(program, arguments)
    check_whole("chunk", chunk, 1)
    return program(*arguments, chunk)


def mix_models(weights: Any, models: tuple[Params, ...]) -> Params:
    """The sum of n models by weights f32[n]; weight 0 leaves out even what is NaN."""

    def total(*leaves: Any) -> Any:
        terms = zip(weights, leaves, strict=True)
        # 0 * NaN is NaN: a model that has diverged must not reach the other end.
        return sum(jnp.where(w == 0, 0, w * leaf) for w, leaf in terms)

    return jax.tree.map(total, *models)


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
        raise ValueError(
            f"{name} is {value}, expected {bound}; choose such a whole number"
        )


def widest(program: Any, arguments: tuple) -> int:
    """The greatest of `WIDTHS` at which the program needs no more than what is free."""
    free = memory.free_bytes(1)
    for width in WIDTHS:
        # A program that was compiled here is not compiled again by the call.
        compiled = program.lower(*arguments, width).compile()
        if memory.needed_bytes(compiled) <= free:
            return width
    return 1


def over_models(
    one: Callable[[tuple[Params, ...], ClientData], Any],
    models: tuple[Params, ...],
    data: ClientData,
    is_stacked: tuple[bool, ...],
    chunk: int,
) -> Any:
    """`one(models, data)` of each client, stacked [C, ...].

    `is_stacked` says which of the models, and whether data, have an axis of clients;
    the others are shared. If none has, this is one call.
    """
    if not any(is_stacked):
        return one(models, data)
    spans = (data.offset, data.size)
    parts = (*models, spans)
    stacked_parts = [
        part for part, stacked in zip(parts, is_stacked, strict=True) if stacked
    ]
    clients = jax.tree.leaves(stacked_parts[0])[0].shape[0]

    # By index, not by vmapped leaves: what is shared is not copied.
    def evaluate_client(k):
        *client_models, span = [
            tree.take(part, k) if stacked else part
            for part, stacked in zip(parts, is_stacked, strict=True)
        ]
        return one(tuple(client_models), ClientData(data.examples, *span))

    # Chunks are made of clients with like numbers of rows.
    work = jnp.broadcast_to(data.size, (clients,))
    return chunked_vmap.over_clients(
        evaluate_client, (jnp.arange(clients),), work, chunk
    )
