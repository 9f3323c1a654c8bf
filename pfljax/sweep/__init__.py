"""Sweeps over seeds and settings of one experiment: many runs, few compiled programs.

    over       {"seed": (0, 1, 2), "mu": (0.0, 0.1), "mixing": ("model", "layer")}
    points     one run for each combination                          (points)
    groups     points that differ only in traced numbers and seeds   (groups)
    program    one for each group; on a CPU a device trains one run after another,
               elsewhere all of them under one vmap                  (program, one_run)
    events     of asynchronous runs, ordered on the host before      (asynchronous)
    folder     one file for each finished run, one tidy table     (run_files, results)

Other values of a traced number compile nothing. Runs that do not fit into memory
together are trained by the same program in several calls. The function `sweep` is in
`pfljax.sweep.run`.
"""

from pfljax.sweep.results import Result, Sweep
from pfljax.sweep.run import sweep

__all__ = ["Result", "Sweep", "sweep"]
