"""The data set in the package: the UCI handwritten digits."""

from importlib import resources

import numpy as np

from pfljax.data.arrays import Arrays, from_arrays


def digits() -> Arrays:
    """1,797 handwritten digits, u8[1797, 8, 8, 1] of 0 .. 16, ten classes."""
    file = resources.files("pfljax.data.sources.embedded") / "digits.npz"
    with file.open("rb") as stream, np.load(stream) as stored:
        x = stored["x"]
        y = stored["y"]
    return from_arrays(
        x,
        y,
        scale=16.0,
        name="digits",
        source="UCI Optical Recognition of Handwritten Digits, E. Alpaydin and "
        "C. Kaynak 1998, CC BY 4.0, doi 10.24432/C50P49",
    )
