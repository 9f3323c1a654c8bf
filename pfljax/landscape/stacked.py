"""Models that come one, or stacked over clients: told by shape, judged in chunks."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.types import ClientData, Params, Task
from pfljax.engine import chunked_vmap
from pfljax.runtime import memory

WIDTHS = (32, 16, 8, 4, 2, 1)  # models judged under one vmap on an accelerator


def shapes(task: Task) -> Params:
    """The shapes and types of one model's parameters."""
    return jax.eval_shape(task.init, jax.eval_shape(jax.random.key, 0))


def count(task: Task, params: Params, name: str) -> int | None:
    """C if `params` are those of C stacked models, None if they are one model's.

    Raises:
      ValueError: they are neither; `name` is what the message calls them.
    """
    one = tree.paths(shapes(task))
    found = tree.paths(params)
    if list(one) != list(found):
        raise ValueError(
            f"{name} has the leaves {', '.join(found) or 'none'}, expected "
            f"{', '.join(one)}; give parameters of this task's model"
        )
    first = next(iter(one))
    extra = jnp.ndim(found[first]) - one[first].ndim
    lead = jnp.shape(found[first])[:1] if extra == 1 else ()
    for leaf, expected in one.items():
        if jnp.shape(found[leaf]) != (*lead, *expected.shape):
            raise ValueError(
                f"{name} has shape {jnp.shape(found[leaf])} at {leaf}, expected "
                f"{expected.shape} of one model, or that behind one axis C, the same "
                "at every leaf, of stacked models; give parameters of this task's model"
            )
    return lead[0] if lead else None


def alike(models: Mapping[str, Params], stacked: bool) -> None:
    """Raises a ValueError unless the models have the same leaves, of the same shapes.

    If `stacked`, these must all begin with one axis of clients. It needs no task, so
    it cannot see that models are stacked where `stacked` is False.
    """
    shapes = {name: _shapes(model) for name, model in models.items()}
    (first, expected), *others = shapes.items()
    for name, found in others:
        for leaf in expected | found:
            if found.get(leaf) != expected.get(leaf):
                raise ValueError(
                    f"{leaf} has shape {found.get(leaf)} in {name}, and "
                    f"{expected.get(leaf)} in {first}; give models of one task, all "
                    "stacked over the same clients or none"
                )
    if stacked and len({shape[:1] or None for shape in expected.values()}) != 1:
        raise ValueError(
            f"stacked is True, but the leaves of {first} have the shapes "
            f"{', '.join(map(str, expected.values()))}, expected one axis of clients "
            "first, the same at every leaf; leave stacked out for one model"
        )


def _shapes(params: Params) -> dict[str, tuple[int, ...]]:
    return {path: jnp.shape(leaf) for path, leaf in tree.paths(params).items()}


def count_all(
    task: Task, models: Mapping[str, Params], data: ClientData
) -> tuple[bool, ...]:
    """Which of the models, and of `data`, are stacked over clients.

    Raises:
      ValueError: they are stacked over different numbers of clients, or there is no
        row at all.
    """
    rows, sizes = jnp.shape(data.offset), jnp.shape(data.size)
    if rows != sizes or len(rows) > 1:
        raise ValueError(
            f"offset and size of the data have shapes {rows} and {sizes}, expected "
            "both () for one client or (C,) for C; give a ClientData of either"
        )
    if not len(data.examples.y):
        raise ValueError("data has no rows; give those of a client that has some")
    counts = {name: count(task, params, name) for name, params in models.items()}
    counts["data"] = rows[0] if rows else None
    if len({c for c in counts.values() if c is not None}) > 1:
        told = ", ".join(f"{name} {c or 'one'}" for name, c in counts.items())
        raise ValueError(
            f"the numbers of clients differ: {told}; stack all over the same clients, "
            "or give one model, or one client's rows (landscape.pooled makes them)"
        )
    return tuple(c is not None for c in counts.values())


def call(program: Any, given: tuple, chunk: int | None) -> Any:
    """`program(*given, width)` of a jitted program, `width` models at once.

    It is `chunk`; if that is None, 1 on a CPU, which is fastest in a loop, else what
    fits into memory.

    Raises:
      ValueError: `chunk` is not a positive whole number.
    """
    if chunk is None:
        chunk = 1 if jax.default_backend() == "cpu" else widest(program, given)
    at_least("chunk", chunk, 1)
    return program(*given, chunk)


def mixture(weights: Any, models: tuple[Params, ...]) -> Params:
    """The sum of n models by weights f32[n]; weight 0 leaves out even what is NaN."""

    def total(*own: Any) -> Any:
        pairs = zip(weights, own, strict=True)
        return sum(jnp.where(w == 0, 0, w * leaf) for w, leaf in pairs)

    return jax.tree.map(total, *models)


def if_finite(model: Params, found: Any) -> Any:
    """`found`, or NaN if the model is not finite: its hits are those of class 0."""
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(model)])
    return jax.tree.map(lambda leaf: jnp.where(finite.all(), leaf, jnp.nan), found)


def at_least(name: str, value: int, least: int, most: int | None = None) -> None:
    """Raises a ValueError unless `value` is a whole number in least .. most."""
    whole = isinstance(value, int | np.integer)
    if not whole or value < least or (most is not None and value > most):
        bound = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(
            f"{name} is {value}, expected {bound}; choose such a whole number"
        )


def widest(program: Any, given: tuple) -> int:
    """The greatest of `WIDTHS` at which the program needs no more than what is free."""
    free = memory.free_bytes(1)
    for width in WIDTHS:  # a program that was compiled here is not compiled again
        if memory.needed_bytes(program.lower(*given, width).compile()) <= free:
            return width
    return 1


def over_models(
    one: Callable[[tuple[Params, ...], ClientData], Any],
    models: tuple[Params, ...],
    data: ClientData,
    each: tuple[bool, ...],
    chunk: int,
) -> Any:
    """`one(models, data)` of each client, stacked [C, ...].

    `each` says which of the models, and whether data, are stacked; the others are
    shared. If none is, this is one call.
    """
    if not any(each):
        return one(models, data)
    parts = *models, (data.offset, data.size)
    stacked = next(part for part, yes in zip(parts, each, strict=True) if yes)
    clients = jax.tree.leaves(stacked)[0].shape[0]

    def own(k):
        *mine, rows = [
            tree.take(part, k) if yes else part
            for part, yes in zip(parts, each, strict=True)
        ]
        return one(tuple(mine), ClientData(data.examples, *rows))

    work = jnp.broadcast_to(data.size, (clients,))
    return chunked_vmap.over_clients(own, (jnp.arange(clients),), work, chunk)
