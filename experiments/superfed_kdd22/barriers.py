"""Barriers between all pairs of 100 clients' models, before and after personalisation.

    pfljax prepare mnist
    python experiments/superfed_kdd22/barriers.py

The runs use MNIST, 100 clients with two shards each, and 50 rounds of SuPerFed's
protocol. "Before" shows the models of FedAvg after one more local training of each
client, which are not averaged. "After" shows the personal models of Ditto, SuPerFed-MM
and SuPerFed-LM (lambda = 1/2). The line between the models of two clients is evaluated
on the test examples of both, at its ends and midway. One compiled program evaluates all
4,950 lines.

On one busy CPU core and with seed 0, the 4,950 lines took 25 to 82 s. The columns are
the barrier of the loss (mean, greatest), the accuracy at the ends and midway, and the
cosine:
    FedAvg, before        0.000, 0.01   0.738  0.965   0.997
    Ditto, after          0.000, 0.13   0.878  0.920   0.991
    SuPerFed-MM, after    0.002, 0.08   0.634  0.872   0.556
    SuPerFed-LM, after    0.001, 0.25   0.627  0.852   0.559
"""

import time
from pathlib import Path

import numpy as np
from protocol import METHODS, MNIST
from shared import script

from pfljax import landscape
from pfljax.core.components import Component
from pfljax.report.style import save_figure
from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate.run import run

CASES = {
    "FedAvg": ("before", {}),
    "Ditto": ("after", {}),
    "SuPerFed-MM": ("after", {"start": 0.4}),
    "SuPerFed-LM": ("after", {"start": 0.4}),
}
ROUNDS, POINTS = 50, 3


def told(found: landscape.Pairs) -> str:
    """Means over the pairs."""
    pairs = np.triu_indices(len(found.cosine), 1)
    ends = (found.line.metrics["accuracy"][..., at][pairs] for at in (0, -1))
    middle = landscape.midpoint(found.line, "accuracy")[pairs]
    loss, accuracy = (
        landscape.barrier(found.line, name)[pairs] for name in ("loss", "accuracy")
    )
    return (
        f"barrier of the loss {loss.mean():.3f} (greatest {loss.max():.2f}), of the "
        f"accuracy {accuracy.mean():.3f}; accuracy at the ends "
        f"{np.mean([end.mean() for end in ends]):.3f}, midway {middle.mean():.3f}; "
        f"cosine {found.cosine[pairs].mean():.3f}, distance "
        f"{found.distance[pairs].mean():.2f}"
    )


def main(rounds: script.Positive = ROUNDS, out: str = "runs/superfed-barriers") -> None:
    """Trains what is not trained, evaluates all pairs, and draws them."""
    use_compile_cache()
    for label, (when, more) in CASES.items():
        method = METHODS[label]
        experiment = MNIST.replace(
            algorithm=Component(method.algorithm, {**method.hyper, **more}),
            label=label, clients=100, rounds=rounds, out=f"{out}/{label}",
        )  # fmt: skip
        run(experiment)
        done = landscape.Finished(experiment.folder)
        models = done.models("trained" if when == "before" else "personal")
        start = time.monotonic()
        rows = done.federation.test
        found = landscape.pairs(done.task, models, rows, points=POINTS)
        seconds = time.monotonic() - start
        print(f"{label}, {when}: {told(found)}; {seconds:.0f} s", flush=True)
        matrices = {
            f"{name} barrier": landscape.barrier(found.line, name)
            for name in ("loss", "accuracy")
        }
        figure = landscape.draw_matrices(matrices | {"cosine": found.cosine})
        save_figure(figure, Path(out) / f"pairs_{label}")


if __name__ == "__main__":
    script.run(main)
