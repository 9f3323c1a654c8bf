"""The loss around models: planes of parameter space.

Functions take parameter pytrees and a `Task` with data, and return arrays; `figures`
draws them.
"""

from pfljax.landscape.figures import draw_planes
from pfljax.landscape.planes import Plane, plane, random_direction

__all__ = ["Plane", "draw_planes", "plane", "random_direction"]
