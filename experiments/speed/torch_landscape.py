"""A plain PyTorch loop over the points of a landscape: a peer of `pfljax bench`.

    pip install torch
    pfljax bench plane lines --rounds 5 --against \
        "python experiments/speed/torch_landscape.py {workload} --points 5"

The sizes of `pfljax.bench.landscape`: TwoCNN on images of 32 x 32 x 3. Each point's
parameters are written into the model, which then predicts its rows 100 at a time.
Prints points a second as the bench reads them.
"""

import json
import time
from typing import Literal

import torch
import tyro
from torch import nn
from tyro.conf import Positional

# (clients, rows of each, axes)
CASES = {
    "plane": (1, 2000, 2),
    "lines": (100, 100, 1),
}
BATCH = 100


def twocnn() -> nn.Module:
    """The model of W2: two 5 x 5 convolutions and a dense layer of 512."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 8 * 8, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


@torch.no_grad()
def judge(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """(mean loss, accuracy) on the rows."""
    loss = 0.0
    hits = 0.0
    for start in range(0, len(x), BATCH):
        labels = y[start : start + BATCH]
        logits = model(x[start : start + BATCH])
        loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        hits += (logits.argmax(1) == labels).sum().item()
    return loss / len(x), hits / len(x)


@torch.no_grad()
def write_mixture(
    model: nn.Module, models: list[nn.Module], weights: list[float]
) -> None:
    """Writes the weighted sum of the models' parameters into `model`."""
    parameters = [part.parameters() for part in models]
    for target, *parts in zip(model.parameters(), *parameters, strict=True):
        total = sum(w * part for w, part in zip(weights, parts, strict=True))
        target.copy_(total)


def weights_of(axes: int, axis: list[float]) -> list[list[float]]:
    """The weights of the ends at each point of the line or the plane."""
    if axes == 1:
        return [[1 - a, a] for a in axis]
    return [[1 - a - b, a, b] for a in axis for b in axis]


def main(landscape: Positional[Literal["plane", "lines"]], points: int = 21) -> None:
    """Times one landscape of `points` along an axis, after a short warm-up."""
    clients, rows, axes = CASES[landscape]
    torch.manual_seed(0)
    x = torch.randn(clients, rows, 3, 32, 32)
    y = torch.randint(10, (clients, rows))
    ends = [twocnn() for _ in range(axes + 1)]
    model = twocnn()
    axis = torch.linspace(0, 1, points).tolist()
    weights_by_point = weights_of(axes, axis)
    judge(model, x[0], y[0])  # warms up
    start = time.perf_counter()
    for client in range(clients):
        for weights in weights_by_point:
            write_mixture(model, ends, weights)
            judge(model, x[client], y[client])
    rate = clients * len(weights_by_point) / (time.perf_counter() - start)
    print("JSON", json.dumps({"client_steps_per_s": rate}))


if __name__ == "__main__":
    tyro.cli(main)
