"""What a device can do by its published figures: the roofline.

Williams, Waterman and Patterson, CACM 2009, https://doi.org/10.1145/1498765.1498785.
"""

from typing import NamedTuple


class Device(NamedTuple):
    """An accelerator by the figures of who makes it; nothing here was measured."""

    name: str
    peaks: dict[str, float]  # FLOP/s of dense products, by precision
    bandwidth: float  # bytes a second, of its memory
    memory: float  # bytes
    source: str


_HOPPER = {"float32": 67e12, "tf32": 494.7e12, "bfloat16": 989.4e12}
# Passes of bfloat16 that JAX documents for a product: `jax.lax.Precision`.
_V5E = {"float32": 197e12 / 6, "tf32": 197e12 / 3, "bfloat16": 197e12}
DEVICES = (
    Device(
        name="H100 SXM",
        peaks=_HOPPER,
        bandwidth=3.35e12,
        memory=80e9,
        source="NVIDIA H100 Tensor Core GPU data sheet and architecture white paper",
    ),
    Device(
        name="H200 SXM",
        peaks=_HOPPER,
        bandwidth=4.8e12,
        memory=141e9,
        source="NVIDIA H200 Tensor Core GPU data sheet",
    ),
    Device(
        name="TPU v5e",
        peaks=_V5E,
        bandwidth=819e9,
        memory=16e9,
        source="Google Cloud documentation, TPU v5e; float32 in 6 passes, tf32 in 3",
    ),
)


class Bound(NamedTuple):
    """The most that a device can do of some work."""

    flops: float  # a second
    by_memory: bool  # and not by products

    def times_a_second(self, work: float) -> float:
        """How often work of so many FLOPs is done in a second, at most."""
        return self.flops / work


def bound(device: Device, precision: str, flops: float, nbytes: float) -> Bound:
    """The roofline over this work: the least of peak and intensity times bandwidth.

    Raises:
      KeyError: no figure of this precision is known.
    """
    peak = device.peaks[precision]
    slope = flops / nbytes * device.bandwidth
    return Bound(flops=min(peak, slope), by_memory=slope < peak)
