"""From a model's forward pass to a `Task`, whatever library the model is written in.

Linen (`task.py`) and NNX (`nnx.py`) differ in how a module is called. All else that a
method needs is made here: logits, features and loss of a batch, statistics that follow
it in training mode, and the part and the module that each leaf belongs to.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from pfljax.core import factories, requirements, statistics, tree
from pfljax.core.components import Component, convert
from pfljax.core.kinds import KINDS
from pfljax.core.losses import mean
from pfljax.core.precision import EXACT, PRECISIONS
from pfljax.core.types import Array, Batch, Key, Params, Task
from pfljax.models import mixed_precision
from pfljax.models.variables import split, without_key

PARTS = ("body", "head")
Loss = str | Component | Callable[[Array, Array], Array]
# (state, x, mask, part, key) -> (outputs, new statistics); see `assemble`.
Apply = Callable[..., tuple[Array, Params]]


def assemble(
    *,
    init: Callable[[Key], Params],
    apply: Apply,
    normalise: Callable[[Array], Array],
    example: np.ndarray,
    kind: str,
    loss: Loss,
    shapes: Params,
    order: Sequence[tuple[str, ...]],
    precision: str = EXACT,
    vocab: int | tuple[int, ...] | None = None,
    divided: bool = True,
) -> Task:
    """Makes the task of a model's `apply`.

    Args:
      init: key -> params.
      apply: (state, x, mask, part, key) -> (outputs, new statistics) of examples x, of
        which those with mask 1 count; `part` is "body", "head" or None for both. With a
        key the model is in training mode, with None in evaluation mode.
      normalise: raw x -> the numbers that the body takes.
      example: one raw example, [1, *input_shape].
      kind: a name in `core.kinds.KINDS`.
      loss: as in `example_losses`.
      shapes: params, abstract or not; its top level is "body" and "head" if `divided`.
      order: the paths of the modules, first to last; absent ones come after, sorted.
      precision: a name in `core.precision.PRECISIONS`; see `mixed_precision`.
      vocab: the number of tokens, or that of each column, if examples are tokens.
      divided: whether the model has a body and a head; otherwise all is body, and
        `features` and `head` raise a ValueError when a method traces them.
    """
    losses = example_losses(kind, loss)
    requirements.require_known("precision", precision, PRECISIONS)
    run = _runner(apply, normalise, precision)

    def logits(params: Params, batch: Batch, key: Key | None) -> Array:
        return run(params, batch, None, key)

    def features(params: Params, batch: Batch, key: Key | None) -> Array:
        _require_parts(divided)
        return run(params, batch, "body", key)

    def predict(params: Params, batch: Batch) -> Array:
        return logits(params, batch, None)

    def head(params: Params, z: Array, mask: Any = None, key: Any = None) -> Array:
        _require_parts(divided)
        return run(params, _feature_batch(z, mask), "head", key)

    groups = group_leaves(shapes) if divided else jax.tree.map(lambda _: "body", shapes)
    modules, num_modules = number_modules(shapes, order)
    # By shapes alone: nothing is computed or put on a device before a run.
    inner = features if divided else logits
    z = jax.eval_shape(lambda w, x: inner(w, Batch.full(x), None), shapes, example)
    outputs = jax.eval_shape(head, shapes, z) if divided else z
    classes = outputs.shape[-1]
    requirements.require(
        "num_classes", classes, kind != "classes" or classes > 1, "2 or more"
    )
    return Task(
        init=init,
        loss=_mean_loss(losses, logits),
        logits=logits,
        features=features,
        predict=predict,
        head=head,
        groups=groups,
        modules=modules,
        num_modules=num_modules,
        num_classes=classes,
        kind=kind,
        example_losses=losses,
        vocab=vocab,
        precision=precision,
        feature_shape=z.shape[1:] if divided else (),
    )


def _require_parts(divided: bool) -> None:
    if not divided:
        raise ValueError(
            "the method uses the body and the head of a model, but the module does not "
            "consist of them; give it `body: nn.Module` and `head: nn.Module`, and "
            "return `self.head(self.body(x))`, as models.Network(body, head) does"
        )


def _runner(
    apply: Apply, normalise: Callable[[Array], Array], precision: str
) -> Callable[..., Array]:
    """Makes a function (params, batch, part, key) -> outputs, with statistics."""

    def run(params: Params, batch: Batch, part: str | None, key: Key | None) -> Array:
        if not hasattr(batch, "x"):
            expected = "a Batch: Batch.full(x) makes one of raw examples x"
            requirements.require_a("batch", batch, Batch, expected)
        x = batch.x
        # The head takes features, which are not raw.
        x = mixed_precision.lower(x, precision) if part == "head" else normalise(x)
        state = split(params)
        old = state.statistics
        state = state._replace(
            # The gradient of a copy is one of float32 again.
            parameters=mixed_precision.lower(state.parameters, precision),
            # Statistics have no gradient but that of `following`.
            statistics=jax.lax.stop_gradient(old),
        )
        with mixed_precision.products(precision):
            outputs, changed = apply(state, x, batch.mask, part, key)
        outputs = mixed_precision.to_float32(outputs, precision)
        # This is decided at trace time: models without statistics pay nothing for them.
        if key is None or not old:
            return outputs
        # A part changes its own statistics; those of the other part stay.
        merged = flatten_dict(old) | flatten_dict(changed)
        new = unflatten_dict(merged)
        # An empty batch has no statistics.
        new = tree.where(batch.mask.sum() > 0, new, old)
        return statistics.following(outputs, old, new)

    return run


def _feature_batch(z: Array, mask: Array | None) -> Batch:
    """Makes a batch of features; without a mask all of them count."""
    batch = Batch.full(z)
    return batch if mask is None else batch._replace(mask=mask)


def example_losses(kind: str, loss: Loss) -> Callable[[Array, Array], Array]:
    """A function (outputs [B, ...], y [B, ...]) -> the loss of each example, f32[B].

    Args:
      kind: a name in `core.kinds.KINDS`.
      loss: the name of a loss of this kind with its options, such as "huber:delta=2";
        "auto" for the first one; or such a function of your own.

    Raises:
      ValueError: the kind, the loss or an option is unknown or wrong.
    """
    requirements.require_known("kind", kind, KINDS)
    if callable(loss) and not isinstance(loss, Component):
        return loss
    choice = convert(loss)
    known = KINDS[kind].losses
    if choice.name == "auto":
        choice = Component(next(iter(known)))
    factory = factories.get("loss", known, choice.name)
    if factory is None:
        return requirements.find(f"loss of the task {kind!r}", known, choice.name)
    factories.check("loss", choice, factory)
    return partial(factory, **choice.options) if choice.args else factory


def _mean_loss(
    example_loss: Callable[..., Array], logits: Callable[..., Array]
) -> Callable[[Params, Batch, Key | None], Array]:
    """Makes the mean loss over the examples of a batch that count."""

    def mean_loss(params: Params, batch: Batch, key: Key | None) -> Array:
        losses = example_loss(logits(params, batch, key), batch.y)
        # An empty batch has the loss 0, not NaN: a client without examples takes steps.
        return mean(losses, batch)

    return mean_loss


def zero_example(input_shape: Sequence[int]) -> np.ndarray:
    """Makes a raw example of zeros, f32[1, *input_shape].

    Raises:
      ValueError: the shape is not that of an example.
    """
    expected = "the shape of one example without the batch axis, such as (8,)"
    requirements.require_a("input_shape", input_shape, (tuple, list), expected)
    for size in input_shape:
        whole = isinstance(size, int | np.integer) and size > 0
        requirements.require("input_shape", input_shape, whole, expected)
    return np.zeros((1, *input_shape), np.float32)


def find_vocab(module: Any) -> int | tuple[int, ...] | None:
    """Returns the `vocab` of a module that takes tokens; None if it takes numbers.

    Raises:
      ValueError: it is not the number of tokens.
    """
    vocab = getattr(module, "vocab", None)
    if vocab is not None:
        expected = "the number of tokens, or None for a module that takes real numbers"
        types = (int, np.integer, tuple)
        requirements.require_a("the module's vocab", vocab, types, expected)
        requirements.require("the module's vocab", vocab, np.min(vocab) >= 1, expected)
    return vocab


def group_leaves(params: Params) -> Params:
    """Returns "body" or "head" at every leaf: the submodule that it is in.

    Raises:
      ValueError: there are parameters outside of these two.
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
    """Returns (module index at every leaf, number of modules).

    A module owns leaves: a layer's kernel and bias share one index, and so do the scale
    and the running statistics of a normalisation.
    """
    owner = {path: without_key(path)[:-1] for path in flatten_dict(params)}
    owners = sorted(set(owner.values()))
    called = [path for path in order if path in owners]
    # A dict keeps the first place of each: modules in the order of their first call.
    distinct = dict.fromkeys([*called, *owners])
    index = {path: number for number, path in enumerate(distinct)}
    numbers = {path: index[module] for path, module in owner.items()}
    return unflatten_dict(numbers), len(index)
