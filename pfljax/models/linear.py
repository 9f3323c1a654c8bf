"""A dense layer whose kernel is stored [out, in].

It stays because its layout fixes the initial parameters, which are drawn in the order
of storage: with `nn.Dense` in its place, every run of `logistic`, `twocnn` or
`cifar_cnn` would start from other ones. On a CPU a step of a wide layer with few
outputs takes half the time of `nn.Dense`.
"""

from flax import linen as nn

from pfljax.core.types import Array


class Linear(nn.Module):
    """Computes x kernel^T + bias of x [B, d], with a kernel [features, d].

    It is quick because the gradient dY^T X has the layout of the kernel.
    """

    OUTPUTS_FIRST = ("kernel",)
    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Computes outputs [B, features] of inputs [B, d]."""
        # With these axes the spread is that of `nn.Dense`.
        init = nn.initializers.lecun_normal(in_axis=-1, out_axis=-2)
        inputs = x.shape[-1]
        kernel = self.param("kernel", init, (self.features, inputs))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        outputs = x @ kernel.T
        return outputs + bias
