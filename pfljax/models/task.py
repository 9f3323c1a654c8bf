"""From a Flax Linen module to a `Task`: all that a method knows of the model."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from pfljax.core.types import Array, Batch, Key, Params, Task
from pfljax.models.layers import counting

LOSSES = {"cross_entropy": optax.softmax_cross_entropy_with_integer_labels}
PARTS = ("body", "head")


def task(
    module: nn.Module,
    input_shape: Sequence[int],
    *,
    shift: Any = 0.0,
    scale: Any = 1.0,
    loss: str = "cross_entropy",
) -> Task:
    """The task of a Linen module that has two submodules, `body` and `head`.

    Dropout is on where the module has a "dropout" key, which it has in training mode
    alone: `nn.Dropout(rate, deterministic=not self.has_rng("dropout"))`.

    Args:
      module: `head(body(x))` makes logits [B, K]; a model of the zoo, or your own.
      input_shape: the shape of one raw row x, without the batch axis.
      shift: subtracted from x, a number or an array that broadcasts to a row.
      scale: x - shift is divided by it.
      loss: the loss of a row, a name in `LOSSES`.

    Raises:
      ValueError: for a module that is not Linen, lacks `body` or `head`, or keeps
        running statistics; for an unknown loss or an input of another shape.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"module is {type(module).__name__}, expected an instance of "
            "flax.linen.Module; for Flax NNX use pfljax.models.task_from_nnx"
        )
    row = np.zeros((1, *input_shape), np.float32)
    shapes, order = _trace(module, row)

    def apply(
        params: Params, x: Array, mask: Array, part: str | None, key: Key | None
    ) -> Any:
        run = None if part is None else lambda model, x: getattr(model, part)(x)
        rngs = None if key is None else {"dropout": key}
        with counting(mask):
            return module.apply({"params": params}, x, rngs=rngs, method=run)

    return assemble(
        init=lambda key: module.init(key, row)["params"],
        apply=apply,
        normalise=normaliser(input_shape, shift, scale),
        row=row,
        loss=loss,
        shapes=shapes,
        order=order,
    )


def assemble(
    *,
    init: Callable[[Key], Params],
    apply: Callable[[Params, Array, Array, str | None, Key | None], Array],
    normalise: Callable[[Array], Array],
    row: np.ndarray,
    loss: str,
    shapes: Params,
    order: Sequence[tuple[str, ...]],
) -> Task:
    """The task of `apply(params, x, mask, part, key)`.

    Args:
      init: key -> params.
      apply: the model on rows x, of which those of `mask` count; `part` is "body",
        "head" or None for both. A key is training mode, None evaluation mode.
      normalise: raw x -> f32.
      row: one raw row, [1, *input_shape].
      loss: a name in `LOSSES`.
      shapes: params, abstract or not; its top level is "body" and "head".
      order: the paths of the modules, first to last; absent ones come after, sorted.
    """
    row_loss = _choose_loss(loss)

    def logits(params: Params, batch: Batch, key: Key | None) -> Array:
        return apply(params, normalise(batch.x), batch.mask, None, key)

    def features(params: Params, batch: Batch, key: Key | None) -> Array:
        return apply(params, normalise(batch.x), batch.mask, "body", key)

    def head(params: Params, z: Array) -> Array:
        return apply(params, z, jnp.ones(len(z)), "head", None)

    def mean_loss(params: Params, batch: Batch, key: Key | None) -> Array:
        rows = row_loss(logits(params, batch, key), batch.y)
        return jnp.sum(batch.mask * rows) / jnp.maximum(jnp.sum(batch.mask), 1)

    def predict(params: Params, batch: Batch) -> Array:
        return logits(params, batch, None)

    modules, num_modules = number_modules(shapes, order)
    outputs = jax.eval_shape(predict, shapes, jax.eval_shape(Batch.of_rows, row))
    return Task(
        init=init,
        loss=mean_loss,
        logits=logits,
        features=features,
        predict=predict,
        head=head,
        groups=group_leaves(shapes),
        modules=modules,
        num_modules=num_modules,
        num_classes=outputs.shape[-1],
    )


def check_task(task: Task, input_shape: Sequence[int], num_classes: int) -> None:
    """Raises a ValueError unless the task makes logits [B, K] of rows of this shape."""
    params = jax.eval_shape(task.init, jax.random.key(0))
    batch = Batch.of_rows(np.zeros((1, *input_shape), np.float32))
    shape = jax.eval_shape(task.predict, params, batch).shape
    if len(shape) != 2 or shape[1] < num_classes:
        raise ValueError(
            f"the task makes logits of shape {shape} of one row, expected "
            f"{(1, num_classes)}: one for each class of the federation"
        )


def normaliser(
    input_shape: Sequence[int], shift: Any, scale: Any
) -> Callable[[Array], Array]:
    """A function raw x [B, *input_shape] -> (x - shift) / scale, f32.

    Raises:
      ValueError: for a shift or scale that does not broadcast to a row or a scale with
        a zero; and from that function, for rows of another shape.
    """
    expected = tuple(input_shape)
    shift, scale = np.asarray(shift, np.float32), np.asarray(scale, np.float32)
    _check_normalisation(expected, shift, scale)

    def normalise(x: Array) -> Array:
        if x.shape[1:] != expected:
            raise ValueError(
                f"x has shape {x.shape}, expected rows of {expected}; "
                "build the task with the input_shape of the data"
            )
        return (x.astype(jnp.float32) - shift) / scale

    return normalise


def group_leaves(params: Params) -> Params:
    """ "body" or "head" at every leaf: the name of the submodule that it is in.

    Raises:
      ValueError: for parameters outside of these two.
    """
    if not set(params) <= set(PARTS):
        raise ValueError(
            f"the module has parameters in {sorted(params)}, expected submodules "
            "`body` and `head` alone; put each layer into one of them"
        )
    return unflatten_dict({path: path[0] for path in flatten_dict(params)})


def number_modules(
    params: Params, order: Sequence[tuple[str, ...]] = ()
) -> tuple[Params, int]:
    """(module index at every leaf, number of modules).

    A module is what owns leaves: a layer's kernel and bias share one index.
    """
    leaves = list(flatten_dict(params))
    owners = sorted({path[:-1] for path in leaves})
    known = [path for path in dict.fromkeys(order) if path in owners]
    index = {path: i for i, path in enumerate(dict.fromkeys((*known, *owners)))}
    return unflatten_dict({path: index[path[:-1]] for path in leaves}), len(index)


def _choose_loss(loss: str) -> Callable[[Array, Array], Array]:
    if loss not in LOSSES:
        raise ValueError(f"loss is {loss!r}; choose one of {', '.join(LOSSES)}")
    return LOSSES[loss]


def _check_normalisation(row: tuple[int, ...], shift: Any, scale: Any) -> None:
    for name, value in (("shift", shift), ("scale", scale)):
        try:
            fits = np.broadcast_shapes(value.shape, row) == row
        except ValueError:
            fits = False
        if not fits or not np.isfinite(value).all():
            raise ValueError(
                f"{name} has shape {value.shape}, expected finite numbers of a shape "
                f"that broadcasts to a row, {row}"
            )
    if (scale == 0).any():
        raise ValueError("scale has a zero, by which x is divided; use 1 there")


def _trace(module: nn.Module, row: np.ndarray) -> tuple[Params, list[tuple[str, ...]]]:
    """(abstract parameters, paths of the modules as the forward pass calls them)."""
    order = []

    def record(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        order.append(context.module.path)
        return call(*args, **kwargs)

    with nn.intercept_methods(record):
        variables = jax.eval_shape(lambda: module.init(jax.random.key(0), row))
    if others := sorted(set(variables) - {"params"}):
        raise ValueError(
            f"the module has the collections {others}, expected params alone; "
            "use GroupNorm in the place of BatchNorm"
        )
    if missing := [part for part in PARTS if (part,) not in order]:
        raise ValueError(
            f"the module calls no submodule {' and no '.join(missing)}; write it as "
            "a `body` that makes features and a `head` that makes logits of them"
        )
    return variables["params"], order
