"""The loss around models and between them.

Functions take parameter pytrees and a `Task` with data, and return arrays.

lines           metrics between two models
barriers        figures of a line: barrier, height, mean, flat range
curves          curves and simplexes of models; curve_training makes them of low loss
pairs           lines between all pairs of clients
frames          planes through three models, around one, along a trajectory
planes          metrics on a grid of such a plane
align           permutations of hidden units (`pfljax.models.units`)
curvature       Hessian: eigenpairs, trace, density, by lanczos
sharpness       the rise of the loss in a ball
objective       the loss of curvature and sharpness
stacked         one model or many, known by shape
figures         draws lines, planes and pairs; curvature_figures the curvature
finished        the models of a finished run
kinds           landscapes of a finished run: what `pfljax landscape RUN` does
"""

from pfljax.landscape.align import match_units, permute_units
from pfljax.landscape.barriers import arc_mean, barrier, flat_range, height, midpoint
from pfljax.landscape.curvature import Density, Eigen, Trace, density, eigen, trace
from pfljax.landscape.curvature_figures import draw_clients, draw_spectrum
from pfljax.landscape.curve_training import train_curve, train_simplex
from pfljax.landscape.curves import curve, mixtures
from pfljax.landscape.figures import (
    draw_barriers,
    draw_line,
    draw_pairs,
    draw_planes,
    draw_surface,
)
from pfljax.landscape.finished import Finished
from pfljax.landscape.frames import Frame, around, principal, random_direction, through
from pfljax.landscape.kinds.lines import RunLine, run_line
from pfljax.landscape.lines import Between, Line, between, line
from pfljax.landscape.pairs import Pairs, pairs
from pfljax.landscape.planes import Plane, penalty, plane, pooled
from pfljax.landscape.sharpness import Sharpness, sharpness
from pfljax.models.units import hidden_units

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
