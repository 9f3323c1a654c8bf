"""Convolution whose gradients are convolutions too, each in the form that is fast.

The gradients in the images and in the kernel are linear in both of their operands, as
the convolution is. So each of the three has the two others for its gradients, and one
rule says how it is computed on the platform that it is lowered for, and one how under
`vmap`, where kernels by client would make a grouped convolution.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from pfljax import registry
from pfljax.core.types import Array
from pfljax.models import convolution_forms, mixed_precision
from pfljax.models.convolution_forms import Form
from pfljax.models.windows import Window, sides_of

CONVOLUTIONS = ("auto", "im2col", "lax")
# JAX declares no types for it: of two operands and a form.
_with_gradients: Any = partial(jax.custom_vjp, nondiff_argnums=(2,))


def conv_for_platform(conv: str = "auto") -> Callable[..., Array]:
    """The convolution for `nn.Conv(conv_general_dilated=...)`.

    Args:
      conv: "auto", `convolve`; "im2col", the same by matrix products everywhere; or
        "lax", XLA's with JAX's gradients.

    Raises:
      ValueError: for another name.
    """
    registry.require_known("conv", conv, CONVOLUTIONS)
    if conv == "lax":
        return lax.conv_general_dilated
    return im2col if conv == "im2col" else convolve


def convolve(
    lhs: Array,
    rhs: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    *,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    columns: bool = False,
) -> Array:
    """Convolution of images [B, H, W, I] with a kernel [h, w, I / groups, O].

    Takes the arguments of `lax.conv_general_dilated`, and is always NHWC and HWIO as
    Flax calls it: `dimension_numbers` is not read. Gradients of any order, in reverse.

    Args:
      columns: by products of the pixels under each window, on every platform.

    Returns:
      [B, H', W', O], in `preferred_element_type` where it is given.

    Raises:
      ValueError: for other ranks, groups that do not divide the channels, or
        `lhs_dilation`.
    """
    _check(lhs, rhs, lhs_dilation, feature_group_count)
    if precision is None:
        precision = mixed_precision.of_products()
    window = Window(
        size=_pair(rhs.shape[:2]),
        strides=_pair(window_strides),
        dilation=_pair(rhs_dilation or (1, 1)),
    )
    sides = sides_of(padding, lhs.shape[1:3], window)
    form = Form(
        window=window._replace(padding=sides),
        image=_pair(lhs.shape[1:3]),
        channels=lhs.shape[-1],
        outputs=rhs.shape[-1],
        groups=feature_group_count,
        precision=precision,
        columns=columns,
    )
    wider = preferred_element_type or jnp.result_type(lhs, rhs)
    return _convolve(lhs.astype(wider), rhs.astype(wider), form)


im2col = partial(convolve, columns=True)


@_with_gradients
def _convolve(x: Array, kernel: Array, form: Form) -> Array:
    return _operation("forward", form)(x, kernel)


@_with_gradients
def _by_images(slope: Array, kernel: Array, form: Form) -> Array:
    """The gradient in the images, of `slope` [B, H', W', O]."""
    return _operation("by_images", form)(slope, kernel)


@_with_gradients
def _by_kernel(x: Array, slope: Array, form: Form) -> Array:
    """The gradient in the kernel, of `slope` [B, H', W', O]."""
    return _operation("by_kernel", form)(x, slope)


def _keeping(function: Callable[..., Array]) -> Callable[..., Any]:
    """`function` as the forward pass that keeps its two operands."""

    def forward(first: Array, second: Array, form: Form) -> Any:
        return function(first, second, form), (first, second)

    return forward


def _of_convolve(form: Form, kept: Any, slope: Array) -> tuple[Array, Array]:
    x, kernel = kept
    return _by_images(slope, kernel, form), _by_kernel(x, slope, form)


def _of_by_images(form: Form, kept: Any, x: Array) -> tuple[Array, Array]:
    slope, kernel = kept
    return _convolve(x, kernel, form), _by_kernel(x, slope, form)


def _of_by_kernel(form: Form, kept: Any, kernel: Array) -> tuple[Array, Array]:
    x, slope = kept
    return _by_images(slope, kernel, form), _convolve(x, kernel, form)


_convolve.defvjp(_keeping(_convolve), _of_convolve)
_by_images.defvjp(_keeping(_by_images), _of_by_images)
_by_kernel.defvjp(_keeping(_by_kernel), _of_by_kernel)


@cache
def _operation(name: str, form: Form) -> Callable[[Array, Array], Array]:
    """One of the three by its name, for operands of one form."""
    ours = convolution_forms.OURS[name]
    on_cpu = partial(ours, form=form)
    by_columns = partial(ours, form=form._replace(columns=True))
    elsewhere = by_columns
    if not form.columns:
        elsewhere = partial(convolution_forms.BY_LAX[name], form=form)

    @custom_vmap
    def operation(first: Array, second: Array) -> Array:
        return lax.platform_dependent(first, second, cpu=on_cpu, default=elsewhere)

    @operation.def_vmap
    def over_axis(size: int, batched: Any, first: Array, second: Array) -> Any:
        if not batched[1] and name != "by_kernel":
            # One kernel for all: they are so many more images.
            return _folded(operation, first, second), True
        operands = [
            operand if has_axis else jnp.broadcast_to(operand, (size, *operand.shape))
            for operand, has_axis in zip((first, second), batched, strict=True)
        ]
        result = lax.platform_dependent(
            *operands,
            cpu=lambda *each: lax.map(lambda pair: operation(*pair), each),
            # Of kernels by client XLA makes groups, whose gradients GPUs are slow at.
            default=jax.vmap(by_columns),
        )
        return result, True

    return operation


def _folded(operation: Callable[..., Array], first: Array, second: Array) -> Array:
    """The operation over the first two axes of `first`, as over one."""
    lead = first.shape[:2]
    result = operation(first.reshape(-1, *first.shape[2:]), second)
    return result.reshape(*lead, *result.shape[1:])


def _pair(steps: Sequence[int]) -> tuple[int, int]:
    rows, columns = steps
    return rows, columns


def _check(
    lhs: Array, rhs: Array, lhs_dilation: Sequence[int] | None, groups: int
) -> None:
    if lhs.ndim != 4 or rhs.ndim != 4:
        raise ValueError(
            f"a convolution got inputs {lhs.shape} and a kernel {rhs.shape}, expected "
            "[B, H, W, I] and [h, w, I, O]; use conv='lax'"
        )
    if lhs.shape[-1] != rhs.shape[2] * groups or rhs.shape[-1] % groups:
        raise ValueError(
            f"a convolution of {groups} groups got {lhs.shape[-1]} channels and a "
            f"kernel {rhs.shape}, expected [h, w, channels / groups, outputs], outputs "
            "a multiple of the groups"
        )
    if lhs_dilation is not None and any(step != 1 for step in lhs_dilation):
        raise ValueError(f"a convolution got lhs_dilation {lhs_dilation}; conv='lax'")
