"""A plain PyTorch loop over W10 and W11: a peer of `pfljax bench`.

    pip install torch
    pfljax bench W10 W11 --against \
        "python experiments/speed/torch_workloads.py {workload}"

FedAvg by hand, with the sizes of `pfljax.bench.workloads` and the layers of
`pfljax.models`: ResNet-18 and MobileNet with GroupNorm on images of 32 x 32 x 3. The
cohort is dealt to processes, which share the server's parameters and their own sums in
memory. Prints local steps a second as the bench reads them.
"""

import json
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
import tyro
from torch import multiprocessing, nn
from tyro.conf import Positional

CLIENTS = 100
ROWS = 100  # of each client
COHORT = 4
RATE = 0.1
Parameters = list[torch.Tensor]


class Residual(nn.Module):
    """ReLU of two convolutions plus the input, projected where its shape changes."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *convolution(before, channels, 3, stride), nn.ReLU(),
            *convolution(channels, channels, 3, 1),
        )  # fmt: skip
        self.skip = nn.Identity()
        if before != channels:
            self.skip = nn.Sequential(*convolution(before, channels, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> [B, C', H', W']."""
        return nn.functional.relu(self.branch(x) + self.skip(x))


def convolution(
    before: int,
    channels: int,
    size: int,
    stride: int,
    groups: int = 1,
    bias: bool = False,
) -> list[nn.Module]:
    """A convolution, followed by GroupNorm of 8 groups."""
    layer = nn.Conv2d(
        before,
        channels,
        size,
        stride,
        padding=size // 2,
        groups=groups,
        bias=bias,
    )
    return [layer, nn.GroupNorm(8, channels)]


def resnet18() -> nn.Module:
    """The model of W10."""
    layers = [*convolution(3, 64, 3, 1), nn.ReLU()]
    before = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers.append(Residual(before, channels, stride))
        layers.append(Residual(channels, channels, 1))
        before = channels
    mean = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *mean, nn.Linear(512, 10))


def mobilenet() -> nn.Module:
    """The model of W11."""
    layers = [*convolution(3, 32, 3, 2, bias=True), nn.ReLU()]
    before = 32
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 1)):
        layers += [*convolution(before, before, 3, stride, before, True), nn.ReLU()]
        layers += [*convolution(before, channels, 1, 1, bias=True), nn.ReLU()]
        before = channels
    mean = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    head = [nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers, *mean, *head)


# (model, rows of a batch)
CASES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "W10": (resnet18, 20),
    "W11": (mobilenet, 50),
}


class Worker(NamedTuple):
    """What a process shares with the first."""

    server: Parameters
    total: Parameters  # of the parameters of its clients
    calls: Any  # it gets lists of clients, and answers each; None ends it


def work(workload: str, threads: int, worker: Worker) -> None:
    """Trains the clients that it is told, and sums their parameters."""
    torch.set_num_threads(threads)
    make, batch = CASES[workload]
    model = make()
    params = list(model.parameters())
    x = torch.randn(CLIENTS, ROWS, 3, 32, 32)
    y = torch.randint(10, (CLIENTS, ROWS))
    while True:
        clients = worker.calls.recv()
        if clients is None:
            return
        with torch.no_grad():
            torch._foreach_zero_(worker.total)
        for client in clients:
            with torch.no_grad():
                torch._foreach_copy_(params, worker.server)
            train(model, params, x[client], y[client], batch)
            with torch.no_grad():
                torch._foreach_add_(worker.total, params)
        worker.calls.send(True)


def train(
    model: nn.Module,
    params: Parameters,
    x: torch.Tensor,
    y: torch.Tensor,
    batch: int,
) -> None:
    """An epoch of plain SGD, in place."""
    for rows in torch.randperm(len(x)).split(batch):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            torch._foreach_add_(params, grads, alpha=-RATE)


@torch.no_grad()
def one_round(workers: list[Worker]) -> None:
    """A round of FedAvg: all clients have as many rows."""
    cohort = torch.randperm(CLIENTS)[:COHORT].tolist()
    for index, worker in enumerate(workers):
        worker.calls.send(cohort[index :: len(workers)])
    for worker in workers:
        worker.calls.recv()
    server = workers[0].server
    torch._foreach_zero_(server)
    for worker in workers:
        torch._foreach_add_(server, worker.total, alpha=1 / COHORT)


def start(workload: str, processes: int, threads: int) -> list[Worker]:
    """Processes that wait for clients."""
    make, _ = CASES[workload]
    server = shared(list(make().parameters()))
    context = multiprocessing.get_context("spawn")
    workers = []
    for _ in range(processes):
        ours, theirs = context.Pipe()
        total = shared([torch.zeros_like(part) for part in server])
        arguments = (workload, threads, Worker(server, total, theirs))
        context.Process(target=work, args=arguments, daemon=True).start()
        workers.append(Worker(server, total, ours))
    return workers


def shared(params: Parameters) -> Parameters:
    """Copies in memory that processes share."""
    return [part.detach().clone().share_memory_() for part in params]


def main(
    workload: Positional[Literal["W10", "W11"]],
    processes: int = 2,
    threads: int = 1,
    rounds: int = 3,
) -> None:
    """Times some rounds after one of warm-up; `threads` are those of each process."""
    workers = start(workload, processes, threads)
    one_round(workers)
    started = time.perf_counter()
    for _ in range(rounds):
        one_round(workers)
    seconds = time.perf_counter() - started
    for worker in workers:
        worker.calls.send(None)
    _, batch = CASES[workload]
    steps = rounds * COHORT * ROWS // batch
    print("JSON", json.dumps({"client_steps_per_s": steps / seconds}))


if __name__ == "__main__":
    tyro.cli(main)
