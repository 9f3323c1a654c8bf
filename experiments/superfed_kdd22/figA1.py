"""SuPerFed, Figure A1: the loss around the global model, FedAvg, MM and LM (KDD 2022).

    pfljax prepare mnist
    python experiments/superfed_kdd22/figA1.py --scale small

The runs use MNIST and 500 clients with two shards each. The paper does not give its
directions. Here they are two random ones, normalised filter by filter (Li et al.,
2018), from -1 to 1, and the same for all methods. The plane has 21 x 21 points of the
global model's loss on the test examples of all clients together. Sharpness (SAM, ASAM)
and the greatest eigenvalue are those of the same loss on all test examples, not of the
training loss.

The figure shows the first seed, and the table all seeds. Each seed is a separate run,
because a sweep keeps no models. The paper prints no numbers to compare with.

FedAvg's global model is the flatter one (see `REPORT.md`). The small scale took 5 min
for each seed on one core.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import jax
import numpy as np
from protocol import METHODS, MNIST
from shared import script
from shared.published import std_over_seeds
from tyro.conf import arg

from pfljax import landscape
from pfljax.core.components import Component
from pfljax.report.style import save_figure
from pfljax.runs import checks
from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate.run import run
from pfljax.sweep.points import combine

LABELS = {"FedAvg": {}, "SuPerFed-MM": {"start": 0.2}, "SuPerFed-LM": {"start": 0.4}}
ROUNDS = {"small": 50, "paper": 500}
LEVELS = (0.5, 1.0, 2.0)  # of the loss, for the area below
RISE = 0.5  # above the loss of the center


class Measured(NamedTuple):
    """Of one global model; shares in percent of the plane's points."""

    loss: float  # at the center
    below_half: float
    below_1: float
    below_2: float
    below_rise: float  # at most RISE above the center
    sam: float  # greatest rise within 0.05
    asam: float  # and within 0.5, adaptive
    eigenvalue: float  # the greatest


def surface(run: landscape.Finished, points: int) -> landscape.Plane:
    """The plane around the server's model of a finished run."""
    center = run.server()
    keys = (jax.random.key(seed) for seed in (0, 1))
    u, v = (landscape.random_direction(key, center, run.network) for key in keys)
    axis = np.linspace(-1, 1, points)
    frame = landscape.around(center, u, v)
    rows = landscape.pooled(run.federation.test)
    return landscape.plane(run.task, frame, rows, alpha=axis, beta=axis)


def measured(run: landscape.Finished, plane: landscape.Plane) -> Measured:
    """The plane in numbers, and the curvature at its center."""
    given = run.task, run.server(), landscape.pooled(run.federation.test)
    middle = center(plane)
    half, one, two, rise = (
        100 * below(plane, level) for level in (*LEVELS, middle + RISE)
    )
    sam = landscape.sharpness(*given, rho=0.05).rise
    asam = landscape.sharpness(*given, rho=0.5, adaptive=True).rise
    top = landscape.eigen(*given, jax.random.key(0), top=1)
    return Measured(middle, half, one, two, rise, sam, asam, float(top.values[0]))


def center(plane: landscape.Plane) -> float:
    """The loss of the global model."""
    return float(plane.metrics["loss"][len(plane.alpha) // 2, len(plane.beta) // 2])


def below(plane: landscape.Plane, level: float) -> float:
    """Share of the plane's points with a loss of at most `level`."""
    return float((plane.metrics["loss"] <= level).mean())


def markdown(found: Mapping[str, Sequence[Measured]]) -> str:
    """A row a method: means over seeds, ± the std over them."""
    rows = [f"| method | {' | '.join(Measured._fields)} |"]
    rows.append("|---" * (1 + len(Measured._fields)) + "|")
    for label, own in found.items():
        values = np.array(own)
        mean, std = values.mean(0), std_over_seeds(values)
        cells = [
            f"{m:.3f}" + (f" ± {s:.3f}" if s == s else "")
            for m, s in zip(mean, std, strict=True)
        ]
        rows.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def trained(label: str, scale: str, seed: int, out: Path) -> landscape.Finished:
    """The run of this method and seed, or what is left of it."""
    method = METHODS[label]
    experiment = MNIST.replace(
        algorithm=Component(method.algorithm, {**method.hyper, **LABELS[label]}),
        label=label,
        clients=500,
        rounds=ROUNDS[scale],
        seed=seed,
        out=str(out / f"seed-{seed}" / label),
    )
    run(experiment)
    return landscape.Finished(experiment.folder)


def main(
    scale: Literal["small", "paper"] = "small",
    points: Annotated[script.Positive, arg(help="Along each axis, odd.")] = 21,
    seeds: script.Seeds = (0, 1, 2),
    out: Annotated[str | None, arg(help="Else runs/superfed-figA1-SCALE.")] = None,
) -> None:
    """Trains what is not trained, draws the planes of a seed, and measures all."""
    if points % 2 == 0 or points < 3:
        raise ValueError(
            f"--points is {points}; expected an odd number from 3: the center is a "
            "point of such a number only"
        )
    # Refused now, and not after the first seed.
    combine({"seed": seeds})
    checks.check(MNIST.replace(seed=min(seeds)))
    folder = Path(out or f"runs/superfed-figA1-{scale}")
    use_compile_cache()
    found: dict[str, list[Measured]] = {label: [] for label in LABELS}
    text = ""
    for count, seed in enumerate(seeds, 1):
        planes = {}
        for label in LABELS:
            done = trained(label, scale, seed, folder)
            planes[label] = surface(done, points)
            found[label].append(measured(done, planes[label]))
        if seed == seeds[0]:
            save_figure(landscape.draw_planes(planes), folder / "figA1")
        seeds_so_far = ", ".join(map(str, seeds[:count]))
        run_as = f"{MNIST.dataset}, 500 clients, {ROUNDS[scale]} rounds"
        text = f"{run_as}, seeds {seeds_so_far}\n\n{markdown(found)}"
        (folder / "table.md").write_text(text, encoding="utf-8")
    print(f"{text}\nsee {folder}/figA1.png")


if __name__ == "__main__":
    script.run(main)
