"""The loss around models and between them.

Functions take parameter pytrees and a `Task` with data, and return arrays.

lines       metrics between two models, and their barriers
curves      trained curves and simplexes of low loss
matrix      all pairs of clients
planes      grids through three models, around one, along a trajectory
align       permutations of hidden units
curvature   Hessian: eigenpairs, trace, density
ascent      sharpness; objective: the loss of this and of curvature
stacked     one model or many, told by shape
figures     draws all of it
finished    the models of a finished run; runs: what `pfljax landscape RUN` does
"""

from pfljax.landscape.align import hidden_units, match_units, permute_units
from pfljax.landscape.curvature import Density, Eigen, Trace, density, eigen, trace
from pfljax.landscape.curves import curve, mixtures, train_curve, train_simplex
from pfljax.landscape.figures import (
    draw_barriers,
    draw_clients,
    draw_line,
    draw_pairs,
    draw_planes,
    draw_spectrum,
    draw_surface,
)
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
from pfljax.landscape.of_runs.lines import RunLine, run_line
from pfljax.landscape.of_runs.models import Finished
from pfljax.landscape.pairs import Pairs, pairs
from pfljax.landscape.planes import (
    Frame,
    Plane,
    around,
    penalty,
    plane,
    pooled,
    principal,
    random_direction,
    through,
)
from pfljax.landscape.sharpness import Sharpness, sharpness

__all__ = [
    "Between",
    "Density",
    "Eigen",
    "Finished",
    "Frame",
    "Line",
    "Pairs",
    "Plane",
    "RunLine",
    "Sharpness",
    "Trace",
    "arc_mean",
    "around",
    "barrier",
    "between",
    "curve",
    "density",
    "draw_barriers",
    "draw_clients",
    "draw_line",
    "draw_pairs",
    "draw_planes",
    "draw_spectrum",
    "draw_surface",
    "eigen",
    "flat_range",
    "height",
    "hidden_units",
    "line",
    "match_units",
    "midpoint",
    "mixtures",
    "pairs",
    "penalty",
    "permute_units",
    "plane",
    "pooled",
    "principal",
    "random_direction",
    "run_line",
    "sharpness",
    "through",
    "trace",
    "train_curve",
    "train_simplex",
]
