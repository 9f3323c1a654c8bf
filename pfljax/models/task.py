"""From a Flax Linen module to a `Task`: all that a method knows of the model."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from pfljax.core import statistics, tree
from pfljax.core.statistics import STATISTICS
from pfljax.core.types import Array, Batch, Key, Params, Task
from pfljax.models.batch_norm import mask_and_mode
from pfljax.models.variables import State, apart, from_linen, without_key

LOSSES = {"cross_entropy": optax.softmax_cross_entropy_with_integer_labels}
PARTS = ("body", "head")
Apply = Callable[..., tuple[Array, Params]]


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
    alone: `nn.Dropout(rate, deterministic=not self.has_rng("dropout"))`. `nn.BatchNorm`
    without `use_running_average` takes the batch's statistics in training mode, and
    running ones in evaluation mode; these are leaves of the parameters
    (`pfljax.core.statistics`).

    Args:
      module: `head(body(x))` makes logits [B, K]; a model of the zoo, or your own.
      input_shape: the shape of one raw row x, without the batch axis.
      shift: subtracted from x, a number or an array that broadcasts to a row.
      scale: x - shift is divided by it.
      loss: the loss of a row, a name in `LOSSES`.

    Raises:
      ValueError: for a module that is not Linen, lacks `body` or `head`, or has other
        collections than params and batch_stats; for an unknown loss or an input of
        another shape.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"module is {type(module).__name__}, expected an instance of "
            "flax.linen.Module; for Flax NNX use pfljax.models.task_from_nnx"
        )
    row = np.zeros((1, *input_shape), np.float32)
    shapes, order = _trace(module, row)

    def init(key: Key) -> Params:
        with mask_and_mode(jnp.ones(1), training=False):
            return from_linen(module.init(key, row))

    def apply(
        state: State, x: Array, mask: Array, part: str | None, key: Key | None
    ) -> tuple[Any, Params]:
        training = key is not None
        variables = {
            "params": state.parameters,
            STATISTICS: state.statistics,
        }
        with mask_and_mode(mask, training):
            outputs, changed = module.apply(
                variables,
                x,
                rngs={"dropout": key} if training else None,
                method=_method_of(part),
                mutable=[STATISTICS],
            )
        # Without batch normalisation the collection is not there.
        return outputs, changed.get(STATISTICS, {})

    return assemble(
        init=init,
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
    apply: Apply,
    normalise: Callable[[Array], Array],
    row: np.ndarray,
    loss: str,
    shapes: Params,
    order: Sequence[tuple[str, ...]],
) -> Task:
    """The task of a model's `apply`.

    Args:
      init: key -> params.
      apply: (state, x, mask, part, key) -> (outputs, new statistics) of rows x, of
        which those of `mask` count; `part` is "body", "head" or None for both. A key is
        training mode, None evaluation mode.
      normalise: raw x -> f32.
      row: one raw row, [1, *input_shape].
      loss: a name in `LOSSES`.
      shapes: params, abstract or not; its top level is "body" and "head".
      order: the paths of the modules, first to last; absent ones come after, sorted.
    """
    row_loss = _choose_loss(loss)
    run = _runner(apply, normalise)

    def logits(params: Params, batch: Batch, key: Key | None) -> Array:
        return run(params, batch, None, key)

    def features(params: Params, batch: Batch, key: Key | None) -> Array:
        return run(params, batch, "body", key)

    def predict(params: Params, batch: Batch) -> Array:
        return logits(params, batch, None)

    def mean_loss(params: Params, batch: Batch, key: Key | None) -> Array:
        rows = row_loss(logits(params, batch, key), batch.y)
        total = jnp.sum(batch.mask * rows)
        # An empty batch has the loss 0, not NaN: so steps a client without rows.
        return total / jnp.maximum(jnp.sum(batch.mask), 1)

    def head(params: Params, z: Array) -> Array:
        return run(params, Batch.of_rows(z), "head", None)

    modules, num_modules = number_modules(shapes, order)
    # By shapes alone: nothing is computed or put on a device before a run.
    batch = jax.eval_shape(Batch.of_rows, row)
    outputs = jax.eval_shape(predict, shapes, batch)
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


def _runner(apply: Apply, normalise: Callable[[Array], Array]) -> Callable[..., Array]:
    """A function (params, batch, part, key) -> outputs, which carry statistics."""

    def run(params: Params, batch: Batch, part: str | None, key: Key | None) -> Array:
        x = batch.x
        # The head's rows are features, not raw ones.
        if part != "head":
            x = normalise(x)
        state = apart(params)
        old = state.statistics
        # Statistics have no gradient but that of `following`.
        state = state._replace(statistics=jax.lax.stop_gradient(old))
        outputs, changed = apply(state, x, batch.mask, part, key)
        # Decided at trace time: models without statistics pay nothing for them.
        if key is None or not old:
            return outputs
        # One part alone changes its own statistics; those of the other are old.
        merged = flatten_dict(old) | flatten_dict(changed)
        new = unflatten_dict(merged)
        # A batch without rows has no statistics.
        new = tree.where(batch.mask.sum() > 0, new, old)
        return statistics.following(outputs, old, new)

    return run


def _method_of(part: str | None) -> Callable[..., Any] | None:
    """What Linen's `apply` calls for one part; None: the module's `__call__`."""
    if part is None:
        return None
    return lambda model, x: getattr(model, part)(x)


def check_task(task: Task, input_shape: Sequence[int], num_classes: int) -> None:
    """Raises a ValueError unless the task makes logits [B, K] of rows of this shape."""
    params = jax.eval_shape(task.init, jax.random.key(0))
    row = np.zeros((1, *input_shape), np.float32)
    logits = jax.eval_shape(task.predict, params, Batch.of_rows(row))
    shape = logits.shape
    # More logits are allowed: a federation may have a part of a data set's classes.
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
    shift = np.asarray(shift, np.float32)
    scale = np.asarray(scale, np.float32)
    _check_normalisation(expected, shift, scale)

    def normalise(x: Array) -> Array:
        if x.shape[1:] != expected:
            raise ValueError(
                f"x has shape {x.shape}, expected rows of {expected}; "
                "build the task with the input_shape of the data"
            )
        # Rows are stored as they come, often uint8: a batch is cast, never the pool.
        centred = x.astype(jnp.float32) - shift
        return centred / scale

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
    group = {path: path[0] for path in flatten_dict(params)}
    return unflatten_dict(group)


def number_modules(
    params: Params, order: Sequence[tuple[str, ...]] = ()
) -> tuple[Params, int]:
    """(module index at every leaf, number of modules).

    A module is what owns leaves: a layer's kernel and bias share one index, and so do
    the scale and the running statistics of a normalisation.
    """
    owner = {path: without_key(path)[:-1] for path in flatten_dict(params)}
    owners = sorted(set(owner.values()))
    called = [path for path in order if path in owners]
    # A dict keeps the first place of each: modules in the order of their first call.
    distinct = dict.fromkeys([*called, *owners])
    index = {path: number for number, path in enumerate(distinct)}
    numbers = {path: index[module] for path, module in owner.items()}
    return unflatten_dict(numbers), len(index)


def _choose_loss(loss: str) -> Callable[[Array, Array], Array]:
    if loss not in LOSSES:
        known = ", ".join(LOSSES)
        raise ValueError(f"loss is {loss!r}; choose one of {known}")
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

    def init() -> Any:
        return module.init(jax.random.key(0), row)

    with nn.intercept_methods(record), mask_and_mode(jnp.ones(1), training=False):
        variables = jax.eval_shape(init)
    if others := sorted(set(variables) - {"params", STATISTICS}):
        raise ValueError(
            f"the module has the collections {others}, expected params and "
            f"{STATISTICS} alone; write it without the others"
        )
    if missing := [part for part in PARTS if (part,) not in order]:
        raise ValueError(
            f"the module calls no submodule {' and no '.join(missing)}; write it as "
            "a `body` that makes features and a `head` that makes logits of them"
        )
    return from_linen(variables), order
