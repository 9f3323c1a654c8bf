"""SuPerFed, Figure A1: the loss around the global model, FedAvg, MM and LM (KDD 2022).

    pfljax prepare mnist
    python experiments/superfed_figA1.py --scale small

MNIST, 500 clients with two shards each. The paper does not say along which directions;
here they are two random ones, normalised filter by filter (Li et al., 2018), the same
draws for all methods, from -1 to 1. The loss is that of the global model on the test
rows of all clients together, 21 x 21 points. Sharpness (SAM, ASAM) and the greatest
eigenvalue are of that same loss on all test rows, not of the training loss.

What was reached: FedAvg's global model is the flatter one (`README.md` here). The small
scale took 5 min on one core.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
from superfed import METHODS, MNIST, positive

from pfljax import landscape, mistakes
from pfljax.cli import use_compile_cache
from pfljax.experiment import run
from pfljax.report.style import save_figure

LABELS = {"FedAvg": {}, "SuPerFed-MM": {"start": 0.2}, "SuPerFed-LM": {"start": 0.4}}
ROUNDS = {"small": 50, "paper": 500}
LEVELS = (0.5, 1.0, 2.0)  # of the loss, for the area below
RISE = 0.5  # above the loss of the center


def surface(run: landscape.Finished, points: int) -> landscape.Plane:
    """The plane around the server's model of a finished run."""
    center = run.server()
    keys = (jax.random.key(seed) for seed in (0, 1))
    u, v = (landscape.random_direction(key, center, run.network) for key in keys)
    axis = np.linspace(-1, 1, points)
    frame = landscape.around(center, u, v)
    rows = landscape.pooled(run.federation.test)
    return landscape.plane(run.task, frame, rows, alpha=axis, beta=axis)


def curvature(run: landscape.Finished) -> str:
    """Sharpness and the greatest eigenvalue at the server's model, in words."""
    given = run.task, run.server(), landscape.pooled(run.federation.test)
    sam = landscape.sharpness(*given, rho=0.05)
    asam = landscape.sharpness(*given, rho=0.5, adaptive=True)
    top = landscape.eigen(*given, jax.random.key(0), top=1)
    return (
        f"the loss rises by {sam.rise:.3f} within .05 (SAM), by {asam.rise:.3f} within "
        f".5 (ASAM); greatest eigenvalue {top.values[0]:.1f}"
    )


def center(plane: landscape.Plane) -> float:
    """The loss of the global model."""
    return float(plane.metrics["loss"][len(plane.alpha) // 2, len(plane.beta) // 2])


def below(plane: landscape.Plane, level: float) -> float:
    """Share of the plane's points with a loss of at most `level`."""
    return float((plane.metrics["loss"] <= level).mean())


@mistakes.in_one_line()
@mistakes.stopped_at_once()
def main() -> None:
    """Trains what is not trained, and draws the three planes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=tuple(ROUNDS), default="small")
    parser.add_argument("--points", type=positive, default=21)
    parser.add_argument("--seed", type=int, default=0, help="of the runs")
    parser.add_argument("--out", help="default runs/superfed-figA1-SCALE-sSEED")
    given = parser.parse_args()
    if given.points % 2 == 0:
        parser.error("--points: the center is a point of an odd number only")
    out = Path(given.out or f"runs/superfed-figA1-{given.scale}-s{given.seed}")
    use_compile_cache()
    planes = {}
    for label, more in LABELS.items():
        method = METHODS[label]
        experiment = MNIST.replace(
            algorithm=method.algorithm,
            hyper={**method.hyper, **more},
            label=label,
            clients=500,
            rounds=ROUNDS[given.scale],
            seed=given.seed,
            out=str(out / label),
        )
        run(experiment)
        done = landscape.Finished(experiment.folder)
        planes[label] = surface(done, given.points)
        middle = center(planes[label])
        levels = (*LEVELS, middle + RISE)
        shares = ", ".join(f"{100 * below(planes[label], x):.0f}" for x in levels)
        print(
            f"{label}: loss {middle:.3f} at the center; % of the plane with a loss of "
            f"at most .5, 1, 2 and the center's + .5: {shares}; {curvature(done)}"
        )
    save_figure(landscape.draw_planes(planes), out / "figA1")
    print(f"see {out}/figA1.png")


if __name__ == "__main__":
    main()
