"""The metric along a run, and what was spent until it reaches a target.

A target is reached at the first evaluation at which the mean of it and those before it
does, three in all if the window is not given.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pfljax.evaluation import fairness
from pfljax.report.frames import Frame, make_frame
from pfljax.report.lead import Lead, read_lead
from pfljax.report.seeds import group_runs
from pfljax.report.tidy import select_main, tidy
from pfljax.runs.result import Result

SHARES = (0.5, 0.9)  # of the best mean: the targets if none are given
SPENT = ("rounds", "bytes", "seconds")


class Curve(NamedTuple):
    """T evaluations of a run, and what it had spent by then; NaN if not recorded."""

    lead: Lead
    mean: np.ndarray  # f[T], of the metric over clients
    rounds: np.ndarray  # f[T]
    bytes: np.ndarray  # f[T], up and down, of all clients
    seconds: np.ndarray  # f[T], of the virtual clock


Curves = Mapping[str, Mapping[int, Curve]]  # by method and seed


def make_curve(run: Result) -> Curve:
    """The curve of the main model of a run."""
    groups = group_runs([run])
    curves = group_curves(tidy(groups))
    return curves[groups[0].label][run.experiment.seed]


def group_curves(frame: Frame) -> dict[str, dict[int, Curve]]:
    """The curves of the main models in a tidy table, by method and seed."""
    lead = read_lead(frame)
    rows = select_main(frame[frame.leads])
    curves: dict[str, dict[int, Curve]] = {}
    for (method, seed), run in rows.groupby(["method", "seed"], sort=False):
        sent = run.bytes_up + run.bytes_down
        columns = [run["mean"], run["round"], sent, run.clock]
        curve = Curve(lead, *(np.array(column, float) for column in columns))
        by_seed = curves.setdefault(str(method), {})
        by_seed[int(seed)] = curve
    return curves


def default_targets(curves: Curves, window: int = fairness.WINDOW) -> tuple[float, ...]:
    """Half and nine tenths of the best mean of a method, in whole percent.

    That is the best running mean of `window` evaluations, averaged over seeds. Of an
    error they are its double and its 10/9, in two digits.
    """
    lead = next(iter(next(iter(curves.values())).values())).lead
    best = -math.inf
    for seeds in curves.values():
        means = [
            lead.sign * fairness.running_mean(curve.mean, window)
            for curve in seeds.values()
        ]
        greatest = [np.max(m[np.isfinite(m)], initial=-math.inf) for m in means]
        best = max(best, float(np.mean(greatest)))
    if not (math.isfinite(best) and lead.sign * best > 0):
        return ()
    if not lead.is_share:
        targets = (lead.sign * best * share**lead.sign for share in SHARES)
        return tuple(float(f"{target:.2g}") for target in targets)
    # A little is added, for 0.9 * 0.8 is 0.72 less a last bit.
    percents = [math.floor(100 * share * best + 1e-6) for share in SHARES]
    return tuple(percent / 100 for percent in percents if percent)


def spent(
    curve: Curve, target: float, window: int = fairness.WINDOW
) -> dict[str, float]:
    """The "rounds", "bytes" and "seconds" until the mean reaches a target.

    "plain_rounds" are those until a single evaluation does. Infinite if it is not
    reached; NaN if not recorded or with fewer evaluations than the window.
    """
    plain = _spent(curve, target, 1)
    return _spent(curve, target, window) | {"plain_rounds": plain["rounds"]}


def _spent(curve: Curve, target: float, window: int) -> dict[str, float]:
    if len(curve.mean) < window:
        return dict.fromkeys(SPENT, math.nan)
    sign = curve.lead.sign
    first = fairness.first_reaching(sign * curve.mean, sign * target, window)
    if first is None:  # NaN stays NaN
        return {name: float(getattr(curve, name)[-1] + math.inf) for name in SPENT}
    return {name: float(getattr(curve, name)[first]) for name in SPENT}


def spent_table(
    curves: Curves, targets: Sequence[float], window: int = fairness.WINDOW
) -> Frame:
    """Costs until targets, such as "rounds_to_0.8", and the area under each curve.

    The index is (method, model, seed).
    """
    rows = []
    for method, seeds in curves.items():
        for seed, curve in seeds.items():
            row = {"method": method, "model": "", "seed": seed}
            for target in targets:
                for name, value in spent(curve, target, window).items():
                    row[f"{name}_to_{target:g}"] = value
            area = fairness.area(curve.rounds, curve.mean)
            rows.append(row | {"area": area, "round": curve.rounds[-1]})
    return make_frame(rows).set_index(["method", "model", "seed"])
