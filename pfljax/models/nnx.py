"""From a Flax NNX module to a `Task`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import unflatten_dict

from pfljax.core.types import Array, Key, Params, Task
from pfljax.models.batch_norm import counting
from pfljax.models.task import assemble, normaliser
from pfljax.models.variables import State, join

STATE = (nnx.Param, nnx.BatchStat)


def task_from_nnx(
    factory: Callable[[nnx.Rngs], nnx.Module],
    input_shape: Sequence[int],
    *,
    shift: Any = 0.0,
    scale: Any = 1.0,
    loss: str = "cross_entropy",
) -> Task:
    """The task of the NNX module that `factory` makes, as `task` makes it of Linen.

    The module has two callable attributes, `body` and `head`, and its logits are
    `head(body(x))`. Dropout is on in training mode, in which batch normalisation takes
    the batch's statistics. Params are a nested dict of arrays, running statistics
    (`nnx.BatchStat`) among them. Modules are numbered in the order of their names, the
    body's first.

    Args:
      factory: nnx.Rngs -> nnx.Module.
      input_shape: the shape of one raw row x, without the batch axis.
      shift: subtracted from x, a number or an array that broadcasts to a row.
      scale: x - shift is divided by it.
      loss: the loss of a row, a name in `pfljax.models.task.LOSSES`.

    Raises:
      ValueError: for a module without `body` and `head`, or with other state.
    """
    module = nnx.eval_shape(lambda: _checked(factory(nnx.Rngs(0))))
    graph, streams, *abstract = nnx.split(module, nnx.RngState, *STATE)

    def apply(
        state: State, x: Array, mask: Array, part: str | None, key: Key | None
    ) -> tuple[Array, Params]:
        rngs = _seed(streams, jax.random.key(0) if key is None else key)
        states = map(_fill, abstract, state)
        # copy: merged variables belong to the trace that calls them.
        model: Any = nnx.merge(graph, rngs, *states, copy=True)
        model.eval() if key is None else model.train()
        with counting(model, mask):
            outputs = getattr(model, part)(x) if part else model.head(model.body(x))
        return outputs, to_dict(nnx.state(model, nnx.BatchStat))

    return assemble(
        init=lambda key: _joined(nnx.state(factory(nnx.Rngs(key)), *STATE)),
        apply=apply,
        normalise=normaliser(input_shape, shift, scale),
        row=np.zeros((1, *input_shape), np.float32),
        loss=loss,
        shapes=_joined(abstract),
        order=[
            _path(path)[:-1]
            for state in abstract
            for path, _ in nnx.to_flat_state(state)
        ],
    )


def to_dict(state: Any) -> Params:
    """The arrays of an NNX state as a nested dict; list positions become strings."""
    flat = nnx.traversals.flatten_mapping(nnx.to_pure_dict(state))
    return unflatten_dict({_path(path): leaf for path, leaf in flat.items()})


def _joined(states: Any) -> Params:
    return join(*map(to_dict, states))


def _path(path: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(str, path))


def _fill(abstract: Any, params: Params) -> Any:
    state = jax.tree.map(lambda leaf: leaf, abstract)  # a copy: it is changed in place
    nnx.replace_by_pure_dict(state, params)
    return state


def _seed(streams: Any, key: Key) -> Any:
    """The random streams of a module, all derived from `key`, their counters at 0."""
    leaves, structure = jax.tree.flatten(streams)
    fresh = [
        jax.random.fold_in(key, i)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else jnp.zeros(leaf.shape, leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, fresh)


def _checked(module: Any) -> Any:
    if not isinstance(module, nnx.Module):
        raise ValueError(
            f"factory made a {type(module).__name__}, expected a flax.nnx.Module; "
            "for Flax Linen use pfljax.models.task"
        )
    missing = [part for part in ("body", "head") if not hasattr(module, part)]
    if missing:
        raise ValueError(
            f"the module has no attribute {' and no '.join(missing)}; write it as a "
            "`body` that makes features and a `head` that makes logits of them"
        )
    *_, others = nnx.split(module, nnx.RngState, *STATE, ...)
    kinds = {type(leaf).__name__ for _, leaf in nnx.to_flat_state(others)}
    if kinds:
        raise ValueError(
            f"the module has the state {', '.join(sorted(kinds))}, expected Param and "
            "BatchStat alone; write it without the others"
        )
    return module
