"""The loss around models and between them.

Functions take parameter pytrees and a `Task` with data, and return arrays.

lines           metrics between two models
barriers        numbers that describe a line: barrier, midpoint, flat range
curves          trained curves between two models
pairs           lines between all pairs of clients
frames          planes through three models, around one, along a trajectory
planes          metrics on a grid of such a plane
align           permutations of hidden units (`pfljax.models.units`)
activations     the same by what the units put out
groups          the barycentre of many models, and convex sums of them
similarity      disagreement and CKA of all pairs of clients' models
layers          lines on which one layer moves at a time
batch_statistics  statistics of models that nobody trained; repair restores them
curvature       the Hessian: eigenpairs, trace and density, by lanczos
sharpness       the rise of the loss in a ball
objective       the loss that curvature and sharpness measure
stacked         one model, or many stacked over clients
figures         figures of lines, pairs and curvature; plane_figures
finished        the models of a finished run
kinds           landscapes of a finished run: the command `pfljax landscape RUN`
"""

from pfljax.landscape.activations import match_activations as match_activations
from pfljax.landscape.align import match_many as match_many
from pfljax.landscape.align import match_units as match_units
from pfljax.landscape.align import permute_units as permute_units
from pfljax.landscape.barriers import barrier as barrier
from pfljax.landscape.barriers import flat_range as flat_range
from pfljax.landscape.barriers import midpoint as midpoint
from pfljax.landscape.curvature import Density as Density
from pfljax.landscape.curvature import Eigen as Eigen
from pfljax.landscape.curvature import Trace as Trace
from pfljax.landscape.curvature import density as density
from pfljax.landscape.curvature import eigen as eigen
from pfljax.landscape.curvature import trace as trace
from pfljax.landscape.curves import curve as curve
from pfljax.landscape.curves import train_curve as train_curve
from pfljax.landscape.figures import draw_layers as draw_layers
from pfljax.landscape.figures import draw_line as draw_line
from pfljax.landscape.figures import draw_matrices as draw_matrices
from pfljax.landscape.figures import draw_rounds as draw_rounds
from pfljax.landscape.figures import draw_sharpness as draw_sharpness
from pfljax.landscape.figures import draw_spectrum as draw_spectrum
from pfljax.landscape.finished import Finished as Finished
from pfljax.landscape.frames import Frame as Frame
from pfljax.landscape.frames import around as around
from pfljax.landscape.frames import cover as cover
from pfljax.landscape.frames import principal as principal
from pfljax.landscape.frames import project as project
from pfljax.landscape.frames import random_direction as random_direction
from pfljax.landscape.frames import through as through
from pfljax.landscape.groups import group as group
from pfljax.landscape.groups import group_barrier as group_barrier
from pfljax.landscape.kinds.command import run_line as run_line
from pfljax.landscape.kinds.command import write_landscape as write_landscape
from pfljax.landscape.layers import find_layers as find_layers
from pfljax.landscape.layers import layer_lines as layer_lines
from pfljax.landscape.lines import Between as Between
from pfljax.landscape.lines import Line as Line
from pfljax.landscape.lines import between as between
from pfljax.landscape.lines import line as line
from pfljax.landscape.pairs import Pairs as Pairs
from pfljax.landscape.pairs import pair_lines as pair_lines
from pfljax.landscape.pairs import pairs as pairs
from pfljax.landscape.plane_figures import draw_planes as draw_planes
from pfljax.landscape.planes import Plane as Plane
from pfljax.landscape.planes import evaluate_points as evaluate_points
from pfljax.landscape.planes import plane as plane
from pfljax.landscape.planes import pooled as pooled
from pfljax.landscape.sharpness import Sharpness as Sharpness
from pfljax.landscape.sharpness import sharpness as sharpness
from pfljax.landscape.similarity import disagreement as disagreement
from pfljax.landscape.similarity import linear_cka as linear_cka
from pfljax.models.units import hidden_units as hidden_units
