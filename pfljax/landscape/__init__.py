"""The loss around models: planes of parameter space.

Functions take parameter pytrees and a `Task` with data, and return arrays; `figures`
draws them.
"""

from pfljax.landscape.align import hidden_units, match_units, permute_units
from pfljax.landscape.curves import curve_weights, mix, train_curve, train_simplex
from pfljax.landscape.figures import draw_planes
from pfljax.landscape.planes import Plane, plane, random_direction

__all__ = [
    "Plane",
    "curve_weights",
    "draw_planes",
    "hidden_units",
    "match_units",
    "mix",
    "permute_units",
    "plane",
    "random_direction",
    "train_curve",
    "train_simplex",
]
