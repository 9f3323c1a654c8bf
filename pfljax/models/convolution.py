"""Convolution whose gradients are convolutions too, each in the form that is fast.

In a scan of three steps of TwoCNN, columns are 3.6 times as fast as `lax.conv` under
`vmap` on a CPU (experiments/speed/REPORT.md).

The gradients in the images and in the kernel are linear in both of their operands, as
the convolution is. So there are three bilinear primitives of JAX, each of which has the
two others as its gradients, in both modes and of any order. One rule says how a
primitive is computed on the platform that it is lowered for. Another says how it is
computed under `vmap`, where a kernel for each client would make a grouped convolution.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from pfljax.core import requirements
from pfljax.core.types import Array
from pfljax.models import convolution_forms, mixed_precision
from pfljax.models.windows import Form, Window, reach, resolve_sides

CONVOLUTIONS = ("auto", "im2col", "lax")


def conv_for_platform(conv: str = "auto") -> Callable[..., Array]:
    """Returns the convolution for `nn.Conv(conv_general_dilated=...)`.

    Args:
      conv: "auto" for `convolve`; "im2col" for the same by matrix products on every
        platform; or "lax" for XLA's convolution with JAX's gradients.

    Raises:
      ValueError: the name is another.
    """
    requirements.require_known("conv", conv, CONVOLUTIONS)
    if conv == "lax":
        return lax.conv_general_dilated
    return im2col if conv == "im2col" else convolve


def conv_layer(conv: str, size: int, **options: Any) -> Callable[[int], nn.Module]:
    """Makes a function of the number of channels: a square convolution layer."""
    return partial(
        nn.Conv,
        kernel_size=(size, size),
        conv_general_dilated=conv_for_platform(conv),
        **options,
    )


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
    """Convolves images [B, H, W, I] with a kernel [h, w, I / groups, O].

    It takes the arguments of `lax.conv_general_dilated`, always in NHWC and HWIO as
    Flax calls it: `dimension_numbers` is not read. It has gradients of any order in
    both modes.

    Args:
      columns: compute products of the pixels under each window, on every platform.

    Returns:
      [B, H', W', O], in `preferred_element_type` where it is given.

    Raises:
      ValueError: ranks are others, images are smaller than the window, or there is an
        `lhs_dilation`.
    """
    _check_operands(lhs, rhs, lhs_dilation)
    window = Window(
        size=_pair(rhs.shape[:2]),
        strides=_pair(window_strides),
        dilation=_pair(rhs_dilation or (1, 1)),
    )
    sides = resolve_sides(padding, lhs.shape[1:3], window)
    form = Form(
        window=window._replace(padding=sides),
        image=_pair(lhs.shape[1:3]),
        channels=lhs.shape[-1],
        outputs=rhs.shape[-1],
        groups=feature_group_count,
        precision=precision or mixed_precision.product_precision(),
        columns=columns,
    )
    _check_size(form)
    wider = preferred_element_type or jnp.result_type(lhs, rhs)
    return FORWARD.bind(lhs.astype(wider), rhs.astype(wider), form=form)


im2col = partial(convolve, columns=True)


def _bilinear(name: str) -> Primitive:
    """Makes the primitive (first, second, form) of one of `convolution_forms.OURS`."""
    primitive = Primitive(f"convolution_{name}")
    ours = convolution_forms.OURS[name]
    by_lax = convolution_forms.BY_LAX[name]

    def compute_elsewhere(first: Array, second: Array, form: Form) -> Array:
        chosen = ours if form.columns else by_lax
        return chosen(first, second, form)

    def shape(first: Any, second: Any, form: Form) -> ShapedArray:
        shapes = {
            "forward": (*first.shape[:1], *form.slope, form.outputs),
            "by_images": (*first.shape[:1], *form.image, form.channels),
            "by_kernel": form.kernel,
        }
        return ShapedArray(shapes[name], first.dtype)

    def batch(operands: Any, axes: Any, form: Form) -> tuple[Array, int]:
        return _batch(primitive, name, operands, axes, form), 0

    primitive.def_impl(partial(_evaluate, primitive))
    primitive.def_abstract_eval(shape)
    on_cpu = mlir.lower_fun(ours, multiple_results=False)
    mlir.register_lowering(primitive, on_cpu, platform="cpu")
    mlir.register_lowering(
        primitive, mlir.lower_fun(compute_elsewhere, multiple_results=False)
    )
    batching.primitive_batchers[primitive] = batch
    return primitive


def _evaluate(primitive: Primitive, *operands: Array, form: Form) -> Array:
    """Computes the primitive outside of a trace."""
    return _compile(primitive, form)(*operands)


@cache
def _compile(primitive: Primitive, form: Form) -> Callable[..., Array]:
    return jax.jit(partial(primitive.bind, form=form))


def _batch(
    primitive: Primitive, name: str, operands: Any, axes: Any, form: Form
) -> Array:
    """Computes the primitive over an axis of its operands, which comes first."""
    images, kernel = (axis is not None for axis in axes)
    (size,) = {
        operand.shape[axis]
        for operand, axis in zip(operands, axes, strict=True)
        if axis is not None
    }
    first, second = (
        operand if axis is None else jnp.moveaxis(operand, axis, 0)
        for operand, axis in zip(operands, axes, strict=True)
    )
    if not kernel and name != "by_kernel":
        # One kernel for all: the axis is that of more images.
        return _fold(partial(primitive.bind, form=form), first, second)
    if not images:
        first = jnp.broadcast_to(first, (size, *first.shape))
    if not kernel:
        second = jnp.broadcast_to(second, (size, *second.shape))
    by_columns = partial(convolution_forms.OURS[name], form=form._replace(columns=True))
    return lax.platform_dependent(
        first,
        second,
        cpu=lambda *both: lax.map(lambda pair: primitive.bind(*pair, form=form), both),
        # XLA would make groups of clients' kernels, whose gradients are slow on GPUs.
        default=jax.vmap(by_columns),
    )


FORWARD = _bilinear("forward")  # of images and kernel
BY_IMAGES = _bilinear("by_images")  # of slope [B, H', W', O] and kernel
BY_KERNEL = _bilinear("by_kernel")  # of images and slope
PRIMITIVES = (FORWARD, BY_IMAGES, BY_KERNEL)

# The gradients of each in its first and in its second operand.
ad.defbilinear(
    FORWARD,
    lambda slope, x, kernel, form: BY_IMAGES.bind(slope, kernel, form=form),
    lambda slope, x, kernel, form: BY_KERNEL.bind(x, slope, form=form),
)
ad.defbilinear(
    BY_IMAGES,
    lambda x, slope, kernel, form: FORWARD.bind(x, kernel, form=form),
    lambda x, slope, kernel, form: BY_KERNEL.bind(x, slope, form=form),
)
ad.defbilinear(
    BY_KERNEL,
    lambda kernel, x, slope, form: BY_IMAGES.bind(slope, kernel, form=form),
    lambda kernel, x, slope, form: FORWARD.bind(x, kernel, form=form),
)


def _fold(operation: Callable[..., Array], first: Array, second: Array) -> Array:
    """Computes the operation with the first two axes of `first` as one."""
    lead = first.shape[:2]
    result = operation(first.reshape(-1, *first.shape[2:]), second)
    return result.reshape(*lead, *result.shape[1:])


def _pair(steps: Sequence[int]) -> tuple[int, int]:
    rows, columns = steps
    return rows, columns


def _check_operands(lhs: Array, rhs: Array, lhs_dilation: Sequence[int] | None) -> None:
    if lhs.ndim != 4 or rhs.ndim != 4 or set(lhs_dilation or ()) - {1}:
        raise ValueError(
            f"a convolution got inputs {lhs.shape}, a kernel {rhs.shape} and "
            f"lhs_dilation {lhs_dilation}; expected [B, H, W, I], [h, w, I, O] and no "
            "lhs_dilation; use conv='lax'"
        )


def _check_size(form: Form) -> None:
    if min(form.slope) < 1:
        high, wide = reach(form.window)
        h, w = form.image
        raise ValueError(
            f"a window of {high}x{wide} pixels got an image of {h}x{w}; choose a model "
            "with fewer pools or larger images"
        )
