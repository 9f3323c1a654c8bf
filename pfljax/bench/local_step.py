"""Local training of a cohort under one vmap, as a GPU or a TPU would be given it.

It is lowered for a TPU and compiled for the CPU at hand: so the forms of convolution
are those of accelerators, and XLA's passes that no platform has for itself are in it. A
proxy: a GPU's or TPU's own passes fuse otherwise, choose layouts, and pad.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import export

from pfljax import models, registry
from pfljax.bench import hlo
from pfljax.bench.catalogue import Workload
from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.training import fit
from pfljax.core.types import (
    Batch,
    ClientData,
    Examples,
    Key,
    Local,
    Params,
    Task,
    Turn,
)
from pfljax.simulate.flops import product_flops

LOWERED_FOR = "tpu"  # no operation in it is of one platform alone
Shape: Any = jax.ShapeDtypeStruct


class Step(NamedTuple):
    """A local step of one client, by its model."""

    task: Task
    workload: Workload

    @property
    def params(self) -> Params:
        """The parameters as shapes."""
        return shapes_of_model(self.task)

    @property
    def batch(self) -> Batch:
        """A minibatch as shapes."""
        rows = self.workload.batch_size
        return Batch(
            x=Shape((rows, *self.workload.shape), jnp.float32),
            y=Shape((rows,), jnp.int32),
            mask=Shape((rows,), jnp.float32),
        )


def step_of(workload: Workload, precision: str = "float32", **options: Any) -> Step:
    """The step of a workload's model, of more options than it names."""
    choice = registry.parse(workload.model)
    given = choice.kwargs | options
    module = models.model(choice.name, workload.num_classes, **given)
    task = models.task(module, workload.shape, precision=precision)
    return Step(task=task, workload=workload)


def flops(step: Step) -> int:
    """FLOPs of the products of a step."""
    return product_flops(_gradient(step), step.params, step.batch, _key())


def least_bytes(step: Step) -> int:
    """Bytes that a step cannot do without moving, were caches of no use.

    Parameters are read and written, gradients written and read, rows read; and what the
    forward pass keeps for the backward one is written and read.
    """
    params = tree.nbytes(step.params)
    return 2 * params + 2 * params + tree.nbytes(step.batch.x) + 2 * kept_bytes(step)


def kept_bytes(step: Step) -> int:
    """Bytes that JAX keeps of the forward pass; XLA may compute some of them again."""

    def pullback(params: Params, batch: Batch, key: Key) -> Any:
        _, backward = jax.vjp(lambda params: step.task.loss(params, batch, key), params)
        return jax.tree.leaves(backward)

    traced = jax.make_jaxpr(pullback)(step.params, step.batch, _key()).jaxpr
    # Parameters and rows are there anyway.
    given = set(map(id, traced.invars))
    kept = {id(v): v.aval for v in traced.outvars if id(v) not in given}
    return sum(aval.size * aval.dtype.itemsize for aval in kept.values())


class Measured(NamedTuple):
    """What XLA says of a program of so many clients."""

    temporary: int  # bytes
    held: int  # bytes, of these and the models that come out
    kernels: dict[str, int]  # by kind, a local step


def compiled(step: Step, width: int) -> Measured:
    """The local training of `width` clients under one vmap, compiled by the proxy."""
    program = _by_proxy(_training(step), *_arguments(step, width))
    temporary = int(program.memory_analysis().temp_size_in_bytes)
    return Measured(
        temporary=temporary,
        held=temporary + width * tree.nbytes(step.params),
        kernels=dict(hlo.step_kernels(program.as_text())),
    )


def xla_bytes(step: Step, width: int) -> float:
    """Bytes that the step of one of `width` clients reads and writes, by XLA."""

    def stepped(params: Params, batch: Batch, key: Key) -> Params:
        slope = _gradient(step)(params, batch, key)
        return tree.axpy(-step.workload.learning_rate, slope, params)

    each = (step.params, step.batch, _key())
    arguments = jax.tree.map(lambda leaf: _stacked(leaf, width), each)
    cost = _by_proxy(jax.vmap(stepped), *arguments).cost_analysis()
    return cost["bytes accessed"] / width


def lowered_ops(step: Step, width: int, platform: str) -> int:
    """Operations of the local training, lowered for a platform."""
    exported = export.export(jax.jit(_training(step)), platforms=[platform])
    return hlo.lowered_ops(exported(*_arguments(step, width)).mlir_module())


def _by_proxy(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function as it is for accelerators, compiled here."""
    anywhere = [export.DisabledSafetyCheck.platform()]
    exporting = export.export(
        jax.jit(function), platforms=[LOWERED_FOR], disabled_checks=anywhere
    )
    exported = exporting(*arguments)
    return jax.jit(exported.call).lower(*arguments).compile()


def _training(step: Step) -> Callable[..., Any]:
    """Local training of FedAvg over (params, rows, a key and a budget a client)."""
    workload = step.workload
    local = Local(
        learning_rate=workload.learning_rate,
        batch_size=workload.batch_size,
        epochs=workload.epochs,
    )

    def train(params: Params, data: ClientData, key: Key, steps: Any) -> Any:
        turn = Turn(
            key=key,
            round=jnp.int32(0),
            steps=steps,
            id=jnp.int32(0),
            num_clients=1,
            public=data,
        )
        trained, _ = fit(step.task.loss, params, data, turn, local, metrics=())
        return trained

    return jax.vmap(train, in_axes=(None, None, 0, 0))


def _arguments(step: Step, width: int) -> tuple[Any, ...]:
    """Shapes of what `_training` takes; clients share rows, which are no part of it."""
    number = Shape((), jnp.int32)
    count = step.workload.batch_size
    pool = Examples(
        x=Shape((count, *step.workload.shape), jnp.float32),
        y=Shape((count,), jnp.int32),
    )
    data = ClientData(examples=pool, offset=number, size=number)
    return step.params, data, _stacked(_key(), width), _stacked(number, width)


def _gradient(step: Step) -> Callable[..., Any]:
    return jax.grad(step.task.loss)


def _stacked(leaf: Any, width: int) -> Any:
    return Shape((width, *leaf.shape), leaf.dtype)


def _key() -> Any:
    return jax.eval_shape(jax.random.key, 0)
