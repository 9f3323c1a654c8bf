"""From a Flax NNX module to a `Task`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.traverse_util import unflatten_dict

from pfljax.core import requirements
from pfljax.core.precision import EXACT
from pfljax.core.types import Array, Key, Params, Task
from pfljax.models.assembly import Apply, Loss, assemble, find_vocab, zero_example
from pfljax.models.nnx_batch_norm import mask_examples
from pfljax.models.normaliser import normaliser
from pfljax.models.variables import State, join

STATE = (nnx.Param, nnx.BatchStat)


def task_from_nnx(
    factory: Callable[[nnx.Rngs], nnx.Module],
    input_shape: Sequence[int],
    *,
    shift: Any = 0.0,
    scale: Any = 1.0,
    kind: str = "classes",
    loss: Loss = "auto",
    precision: str = EXACT,
) -> Task:
    """Makes the task of the NNX module that `factory` makes, like `task` for Linen.

    The module has two callable attributes, `body` and `head`, and its logits are
    `head(body(x))`. Dropout is on in training mode, in which batch normalisation takes
    the batch's statistics. Params are a nested dict of arrays, running statistics
    (`nnx.BatchStat`) among them. Modules are numbered in the order of their names, the
    body's first. As in Linen, `vocab` is the number of tokens of a module that takes
    tokens.

    Args:
      factory: nnx.Rngs -> nnx.Module.
      input_shape: the shape of one raw example x, without the batch axis.
      shift: subtracted from x, a number or an array that broadcasts to an example.
      scale: x - shift is divided by it, unless x are tokens.
      kind: what the targets are, a name in `pfljax.core.kinds.KINDS`.
      loss: the loss of an example, see `pfljax.models.assembly.example_losses`.
      precision: "float32", "tf32" or "bfloat16", in which body and head compute
        (`pfljax.models.mixed_precision`); parameters and losses stay float32.

    Raises:
      ValueError: for a module without `body` and `head`, or with other state; for an
        unknown loss or precision.
    """
    example = zero_example(input_shape)
    _check_factory(factory)
    module = nnx.eval_shape(lambda: _check(factory(nnx.Rngs(0))))
    vocab = find_vocab(module)
    graph, streams, *abstract = nnx.split(module, nnx.RngState, *STATE)

    def init(key: Key) -> Params:
        model = factory(nnx.Rngs(key))
        return _join(nnx.state(model, *STATE))

    order = []
    for state in abstract:
        for path, _ in nnx.to_flat_state(state):
            order.append(_path(path)[:-1])
    return assemble(
        init=init,
        apply=_forward(graph, streams, abstract),
        normalise=normaliser(input_shape, shift, scale, precision, vocab),
        example=example,
        vocab=vocab,
        kind=kind,
        loss=loss,
        shapes=_join(abstract),
        order=order,
        precision=precision,
    )


def _check_factory(factory: Any) -> None:
    expected = "a function nnx.Rngs -> nnx.Module, such as the module's class"
    if isinstance(factory, nnx.Module):
        requirements.require_a("factory", factory, (), expected)
    # NNX's classes hide the signature of what they call.
    if isinstance(factory, type):
        constructor = factory.__init__
        requirements.require_call("factory", constructor, ("self", "rngs"), expected)
    else:
        requirements.require_call("factory", factory, ("rngs",), expected)


def _forward(graph: Any, streams: Any, abstract: Sequence[Any]) -> Apply:
    """Makes the `apply` of `assemble` for a module that is split into these."""

    def apply(
        state: State, x: Array, mask: Array, part: str | None, key: Key | None
    ) -> tuple[Array, Params]:
        training = key is not None
        # In evaluation no stream is read, but a graph needs all its state.
        seed = key if training else jax.random.key(0)
        rngs = _seed(streams, seed)
        filled = map(_fill, abstract, state)
        # NNX wants a copy: merged variables belong to the trace that calls them.
        model: Any = nnx.merge(graph, rngs, *filled, copy=True)
        if training:
            model.train()
        else:
            model.eval()
        with mask_examples(model, mask):
            outputs = _call(model, part, x)
        statistics = nnx.state(model, nnx.BatchStat)
        return outputs, to_dict(statistics)

    return apply


def to_dict(state: Any) -> Params:
    """Converts an NNX state to a nested dict; list positions become strings."""
    flat = nnx.traversals.flatten_mapping(nnx.to_pure_dict(state))
    named = {_path(path): leaf for path, leaf in flat.items()}
    return unflatten_dict(named)


def _call(model: Any, part: str | None, x: Array) -> Array:
    """Computes the outputs of one part of the model, or of both."""
    if part is not None:
        return getattr(model, part)(x)
    features = model.body(x)
    return model.head(features)


def _join(states: Any) -> Params:
    """Joins parameters and statistics, in the order of `STATE`, in one nested dict."""
    parameters, statistics = states
    return join(to_dict(parameters), to_dict(statistics))


def _path(path: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(str, path))


def _fill(abstract: Any, arrays: Params) -> Any:
    """Fills the abstract state of a module with these arrays."""
    # NNX fills a state in place, and the next call needs `abstract`: fill a copy.
    fresh = jax.tree.map(lambda leaf: leaf, abstract)
    nnx.replace_by_pure_dict(fresh, arrays)
    return fresh


def _seed(streams: Any, key: Key) -> Any:
    """Derives all random streams of a module from `key`, with their counters at 0."""
    leaves, structure = jax.tree.flatten(streams)
    fresh = []
    for i, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            # By position: two layers with dropout must not share a mask.
            fresh.append(jax.random.fold_in(key, i))
        else:
            fresh.append(jnp.zeros(leaf.shape, leaf.dtype))
    return jax.tree.unflatten(structure, fresh)


def _check(module: Any) -> Any:
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
    # `...` takes what no filter before it took.
    *_, others = nnx.split(module, nnx.RngState, *STATE, ...)
    kinds = {type(leaf).__name__ for _, leaf in nnx.to_flat_state(others)}
    if kinds:
        raise ValueError(
            f"the module has the state {', '.join(sorted(kinds))}, expected Param and "
            "BatchStat alone; write it without the others"
        )
    return module
