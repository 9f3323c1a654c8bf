"""Which numbers an option takes, written beside its type: `lam: NotNegative = 0.1`."""

import ctypes
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple


class Range(NamedTuple):
    """Which numbers an option takes, as part of its annotation.

    `validate` reads it where a factory is called, and `check` where a choice is made.
    """

    holds: Callable[[Any], bool]
    expected: str
    on_host: bool = False  # Python or NumPy computes with it, in float64

    def takes(self, value: Any) -> bool:
        """Whether it holds of the value, and of what programs make of it in float32.

        There .9999999999 is 1, which a range up to 1 may exclude.
        """
        if not self.holds(value):
            return False
        if self.on_host or not isinstance(value, float):
            return True
        return self.holds(ctypes.c_float(value).value)


# Programs compute in float32: beyond these a number would be infinite there, or 0.
LARGEST = (2 - 2.0**-23) * 2.0**127
SMALLEST = 2.0**-126
NOT_NEGATIVE = Range(
    lambda value: value == 0 or SMALLEST <= value <= LARGEST,
    "a finite number >= 0 (in float32, 0 or from 1.2e-38 to 3.4e38)",
)
POSITIVE = Range(
    lambda value: SMALLEST <= value <= LARGEST,
    "a finite number > 0 (in float32, from 1.2e-38 to 3.4e38)",
)
BELOW_ONE = Range(
    lambda value: 0 <= value < 1,
    "a number >= 0 and below 1 (in float32, up to 0.99999994)",
)
AT_LEAST_ZERO = Range(lambda value: value >= 0, "at least 0")
AT_LEAST_ONE = Range(lambda value: value >= 1, "at least 1")
# A compiled program counts in 32 bits: beyond them it would wrap, in silence.
INT32 = Range(lambda value: value < 2**31, "a number below 2**31")

NotNegative = Annotated[float, NOT_NEGATIVE]
Positive = Annotated[float, POSITIVE]
Deviation = Annotated[  # of a normal distribution
    float,
    Range(
        lambda value: 1e-18 <= value <= 1e18,
        "a standard deviation from 1e-18 to 1e18, whose square float32 can hold",
    ),
]
BelowOne = Annotated[float, BELOW_ONE]
Share = Annotated[float, Range(lambda value: 0 <= value <= 1, "a number from 0 to 1")]
ProperShare = Annotated[
    float, Range(lambda value: 0 < value < 1, "a number > 0 and below 1")
]
PositiveShare = Annotated[
    float, Range(lambda value: 0 < value <= 1, "a number > 0 and up to 1")
]
Count = Annotated[int, AT_LEAST_ZERO, INT32]
AtLeastOne = Annotated[int, AT_LEAST_ONE, INT32]
_OR_NONE = AT_LEAST_ZERO._replace(expected="at least 0, or None")
# None for those of the local training. Epochs may end in a fraction.
Epochs = Annotated[int | float | None, _OR_NONE, INT32]
Steps = Annotated[int | None, _OR_NONE, INT32]
