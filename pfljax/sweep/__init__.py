"""Sweeps over seeds and settings of one experiment: many runs, few compiled programs.

    over       {"seed": (0, 1, 2), "mu": (0.0, 0.1), "mixing": ("model", "layer")}
    points     one run for each combination, in a folder of its own     (points)
    run        one after another; numbers are arguments of the programs (run)
    results    the finished runs, and sweep.json                        (results)

The function `sweep` is in `pfljax.sweep.run`.
"""

from pfljax.sweep.results import Sweep
from pfljax.sweep.run import sweep

__all__ = ["Sweep", "sweep"]
