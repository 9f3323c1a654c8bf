"""The loss around models: planes of parameter space, curvature and sharpness.

Functions take parameter pytrees and a `Task` with data, and return arrays; `figures`
draws them.
"""

from pfljax.landscape.curvature import Density as Density
from pfljax.landscape.curvature import Eigen as Eigen
from pfljax.landscape.curvature import Trace as Trace
from pfljax.landscape.curvature import density as density
from pfljax.landscape.curvature import eigen as eigen
from pfljax.landscape.curvature import trace as trace
from pfljax.landscape.figures import draw_planes as draw_planes
from pfljax.landscape.figures import draw_spectrum as draw_spectrum
from pfljax.landscape.planes import Plane as Plane
from pfljax.landscape.planes import plane as plane
from pfljax.landscape.planes import random_direction as random_direction
from pfljax.landscape.sharpness import Sharpness as Sharpness
from pfljax.landscape.sharpness import sharpness as sharpness
