"""From a Flax Linen module to a `Task`, which is all that a method knows of it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pfljax.core import requirements
from pfljax.core.precision import EXACT
from pfljax.core.statistics import STATISTICS
from pfljax.core.types import Array, Batch, Key, Params, Task
from pfljax.models import units
from pfljax.models.adapters import Adapted, adapt
from pfljax.models.assembly import (
    PARTS,
    Apply,
    Loss,
    assemble,
    find_vocab,
    zero_example,
)
from pfljax.models.batch_norm import mask_and_mode, skip_stateless
from pfljax.models.normaliser import normaliser
from pfljax.models.variables import State, from_linen
from pfljax.runtime.programs import quickly_compiled

TOLERANCE = 1e-3  # relative, of outputs that are the same in another batch


def task(
    module: nn.Module,
    input_shape: Sequence[int],
    *,
    shift: Any = 0.0,
    scale: Any = 1.0,
    kind: str = "classes",
    loss: Loss = "auto",
    precision: str = EXACT,
) -> Task:
    """Makes the task of a Linen module, which may have submodules `body` and `head`.

    Some methods need these two, and refuse a module without them. `nn.Dropout` without
    `deterministic` is on in training mode alone. `nn.BatchNorm` without
    `use_running_average` takes the batch's statistics in training mode and the
    running statistics in evaluation mode; these are leaves of the parameters
    (`pfljax.core.statistics`).

    A module that takes tokens has an attribute `vocab`, their number, or gives x to
    `nn.Embed`. Tokens are not scaled, and the module gets integers.

    Args:
      module: it makes logits [B, K], as `head(body(x))` if it has these two; a model of
        the zoo, or your own.
      input_shape: the shape of one raw example x, without the batch axis.
      shift: subtracted from x, a number or an array that broadcasts to an example.
      scale: x - shift is divided by it, unless x are tokens.
      kind: what the targets are, a name in `pfljax.core.kinds.KINDS`.
      loss: the loss of an example, see `pfljax.models.assembly.example_losses`.
      precision: "float32", "tf32" or "bfloat16", in which body and head compute
        (`pfljax.models.mixed_precision`); parameters and losses stay float32.

    Raises:
      ValueError: the module is not Linen, or has other collections than params and
        batch_stats; the loss or precision is unknown; or an input has another shape.
    """
    _check_module(module)
    options = {"shift": shift, "scale": scale, "kind": kind, "loss": loss}
    if isinstance(module, Adapted):
        wrapped = task(module.model, input_shape, precision=precision, **options)
        return adapt(module, wrapped)
    example = zero_example(input_shape)
    vocab = find_vocab(module)
    first = example if vocab is None else example.astype(np.int32)
    shapes, order, embedded = _trace(module, first)
    if embedded:
        vocab, first = min(embedded), example.astype(np.int32)
    is_divided = all((part,) in order for part in PARTS) and set(shapes) <= {*PARTS}

    def init(key: Key) -> Params:
        with mask_and_mode(jnp.ones(1), training=False):
            return from_linen(module.init(key, first))

    assembled = assemble(
        init=init,
        apply=_forward(module),
        normalise=normaliser(input_shape, shift, scale, precision, vocab),
        example=example,
        vocab=vocab,
        kind=kind,
        loss=loss,
        shapes=shapes,
        order=order,
        precision=precision,
        divided=is_divided,
    )

    def resize(widths: dict[units.Path, int]) -> Task:
        resized = units.resize(module, widths)
        return task(resized, input_shape, precision=precision, **options)

    layers = partial(units.layer_units, module, shapes)
    return assembled._replace(units=layers, resized=resize)


def _check_module(module: Any) -> None:
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"module is {type(module).__name__}, expected an instance of "
            "flax.linen.Module; for Flax NNX use pfljax.models.task_from_nnx"
        )
    for part in PARTS:
        member = getattr(module, part, None)
        # A class is callable, but has no parameters yet.
        if member is not None and (isinstance(member, type) or not callable(member)):
            expected = "a module, such as flax.linen.Dense(10)"
            requirements.require_a(f"the module's {part}", member, (), expected)


def _forward(module: nn.Module) -> Apply:
    """Makes the `apply` of `assemble` for a module."""

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
                method=_method(part),
                mutable=[STATISTICS],
            )
        # Without batch normalisation the collection is not there.
        return outputs, changed.get(STATISTICS, {})

    return apply


def _method(part: str | None) -> Callable[..., Any] | None:
    """Returns the method that Linen's `apply` calls; None is the `__call__`."""
    if part is None:
        return None
    return lambda model, x: getattr(model, part)(x)


def check_task(
    task: Task, input_shape: Sequence[int], num_classes: int, kind: str = "classes"
) -> None:
    """Refuses a task that cannot be evaluated on such examples.

    Raises:
      ValueError: its kind is another one, its outputs are not [B, K], or those of an
        example change with the rest of its batch.
    """
    if task.kind != kind:
        raise ValueError(
            f"the task is of the kind {task.kind!r}, expected {kind!r}, that of the "
            f"data: make it with models.task(module, input_shape, kind={kind!r})"
        )
    example = np.zeros((1, *input_shape), np.float32)

    def predict() -> Array:
        params = task.init(jax.random.key(0))
        return task.predict(params, Batch.full(jnp.asarray(example)))

    shape = jax.eval_shape(predict).shape
    # More logits are allowed: a federation may have a part of a data set's classes.
    expected = [1, num_classes]
    if kind == "tokens":
        expected = [1, input_shape[0], num_classes]
    if len(shape) != len(expected) or shape[-1] < num_classes:
        raise ValueError(
            f"the task makes logits of shape {shape} for one example, expected "
            f"{tuple(expected)}: one for each class of the federation"
        )
    _check_rows(task, input_shape)


def _check_rows(task: Task, input_shape: Sequence[int]) -> None:
    """Refuses a task whose logits of an example depend on the rest of its batch.

    In evaluation mode `layers.BatchNorm` alone may do so, as it says.
    """
    # Zeros and ones are pixels as well as tokens.
    drawn = np.random.default_rng(0).integers(0, 2, (3, *input_shape))
    one, *others = drawn.astype(np.float32)

    def init(key: Any) -> Params:
        # Branches that begin with zeros would hide what lies in them.
        return jax.tree.map(lambda leaf: leaf + 0.1, task.init(key))

    def outputs(params: Params, other: Array) -> tuple[Array, Array]:
        batch = Batch.full(jnp.stack([one, other]))
        if not task.feature_shape:
            return task.predict(params, batch)[0], jnp.zeros(())
        # Logits alone may be 0, where the last layer begins with zeros.
        features = task.features(params, batch, None)
        return features[0], task.head(params, features)[0]

    with skip_stateless():
        params = quickly_compiled(init)(jax.random.key(0))
        compute = quickly_compiled(outputs)
        pairs = zip(*(compute(params, other) for other in others), strict=True)
    for before, after in pairs:
        tolerance = TOLERANCE * np.max(np.abs(before), initial=0)
        if not np.allclose(before, after, TOLERANCE, tolerance, equal_nan=True):
            raise ValueError(
                "the task's logits of an example change with the other examples of its "
                "batch; expected running statistics in evaluation mode: leave "
                "`use_running_average` of Flax's BatchNorm to pfljax, or choose "
                "pfljax.models.layers.BatchNorm, which has none"
            )


def _trace(
    module: nn.Module, example: np.ndarray
) -> tuple[Params, list[tuple[str, ...]], list[int]]:
    """Returns abstract parameters, and the paths of modules in the order of calls.

    The third is the number of tokens of each `nn.Embed` that gets a real x.
    """
    order, embedded = [], []

    def record(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        layer = context.module
        order.append(layer.path)
        if isinstance(layer, nn.Embed) and args and args[0].dtype == np.float32:
            embedded.append(layer.num_embeddings)
            args = (args[0].astype(np.int32), *args[1:])
        return call(*args, **kwargs)

    # The mask is made within the trace; outside of it JAX would compile it.
    def init() -> Any:
        with mask_and_mode(jnp.ones(1), training=False):
            return module.init(jax.random.key(0), example)

    with nn.intercept_methods(record):
        variables = jax.eval_shape(init)
    if others := sorted(set(variables) - {"params", STATISTICS}):
        raise ValueError(
            f"the module has the collections {others}, expected params and "
            f"{STATISTICS} alone; write it without the others"
        )
    return from_linen(variables), order, embedded
