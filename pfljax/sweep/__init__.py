"""Seeds and settings of one experiment: many runs, few compiled programs.

    over       = {"seed": (0, 1, 2), "mu": (0.0, 0.1), "mixing": ("model", "layer")}
    points     = one run a combination                                  (points)
    program    = points that differ in traced numbers and seeds alone   (groups, runs)
    a device   : one run after another on a CPU, else all under one vmap
    folder     = one file a finished run, one tidy table of all         (results)

Other values of a traced number compile nothing. Runs that do not fit in memory together
go through the same program in slices of equal size. The call itself: run.
"""

from pfljax.sweep.results import Result, Sweep
from pfljax.sweep.run import sweep

__all__ = ["Result", "Sweep", "sweep"]
