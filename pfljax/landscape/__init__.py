"""The loss around models: lines, pairs and planes of parameter space.

Functions take parameter pytrees and a `Task` with data, and return arrays; `figures`
draws them, `runs` reads them off a finished run.
"""

from pfljax.landscape.figures import draw_line, draw_pairs, draw_planes
from pfljax.landscape.lines import (
    Between,
    Line,
    arc_mean,
    barrier,
    between,
    flat_range,
    height,
    line,
    midpoint,
)
from pfljax.landscape.pairs import Pairs, pairs
from pfljax.landscape.planes import Plane, plane, pooled, random_direction

__all__ = [
    "Between",
    "Line",
    "Pairs",
    "Plane",
    "arc_mean",
    "barrier",
    "between",
    "draw_line",
    "draw_pairs",
    "draw_planes",
    "flat_range",
    "height",
    "line",
    "midpoint",
    "pairs",
    "plane",
    "pooled",
    "random_direction",
]
