"""A plain PyTorch loop over W8 and W9: a peer of `pfljax bench`.

    pip install torch tyro
    pfljax bench W8 W9 --against \
        "python experiments/speed/torch_groups.py {workload} {algorithm}"

FedProto (Tan et al., AAAI 2022, https://arxiv.org/abs/2105.00243, Algorithm 1) and FML
(Shen et al., 2020, https://arxiv.org/abs/2006.16765, Algorithm 1) by hand, on clients
whose models are of several architectures, those of `torch_architectures`. Each client
keeps its model in one of the processes, which train theirs one after another and share
sums in memory. All clients take part. Prints local steps a second as the bench reads
them.
"""

import json
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
import tyro
from torch import multiprocessing, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax
from torch_architectures import GROUPS, Network
from torch_workloads import Parameters, shared
from tyro.conf import Positional

CLIENTS = 20
ROWS = 100  # of each client
BATCH = 10
CLASSES = 10
RATE = 0.01
LAM = 1.0  # of FedProto
ALPHA = 0.5  # of FML, the share of its own loss in that of the client's model
BETA = 0.5  # and in that of the meme
Rows = tuple[torch.Tensor, torch.Tensor]


class Shared(NamedTuple):
    """What a process shares with the first."""

    server: Parameters
    total: Parameters  # what its clients sent, summed
    calls: Any  # it gets True for a round, and answers; None ends it


class Method(NamedTuple):
    """How a client trains, and what it sends."""

    init: Callable[[Network], Parameters]  # the server, from the smallest model
    train: Callable[[Network, Network, Rows, Parameters, Parameters], None]
    aggregate: Callable[[Parameters, list[Parameters]], None]


def deal(workload: str, processes: int) -> list[list[int]]:
    """The clients of each process, which have about as much to do."""
    group = GROUPS[workload]
    clients = list(range(CLIENTS))

    def cost(client: int) -> float:
        return group[client % len(group)].milliseconds

    dealt: list[list[int]] = [[] for _ in range(processes)]
    for client in sorted(clients, key=cost, reverse=True):
        least = min(dealt, key=lambda ids: sum(map(cost, ids)))
        least.append(client)
    return dealt


def smallest(workload: str) -> Network:
    """A new model of the architecture with the fewest parameters."""

    def size(network: Network) -> int:
        return sum(part.numel() for part in network.parameters())

    return min((each.make() for each in GROUPS[workload]), key=size)


def work(
    workload: str, method: str, clients: list[int], threads: int, ours: Shared
) -> None:
    """Trains these clients whenever it is told, and sums what they send."""
    torch.set_num_threads(threads)
    group = GROUPS[workload]
    networks = [group[client % len(group)].make() for client in clients]
    rows = [random_rows() for _ in clients]
    proxy = smallest(workload)
    train = METHODS[method].train
    while ours.calls.recv():
        with torch.no_grad():
            torch._foreach_zero_(ours.total)
        for network, data in zip(networks, rows, strict=True):
            train(network, proxy, data, ours.server, ours.total)
        ours.calls.send(True)


def random_rows() -> Rows:
    """The rows of a client."""
    return torch.randn(ROWS, 3, 32, 32), torch.randint(CLASSES, (ROWS,))


def step(loss: torch.Tensor, params: Parameters) -> None:
    """A step of plain SGD, in place."""
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        torch._foreach_add_(params, grads, alpha=-RATE)


def proto_init(network: Network) -> Parameters:
    """(the prototypes C^j, of how many rows each is the mean)."""
    width = network.head.in_features
    return [torch.zeros(CLASSES, width), torch.zeros(CLASSES)]


def proto_train(
    network: Network, proxy: Network, data: Rows, server: Parameters, total: Parameters
) -> None:
    """An epoch of FedProto; adds the sums of features and the counts by class."""
    x, y = data
    params = list(network.parameters())
    network.train()
    for rows in torch.randperm(ROWS).split(BATCH):
        features = network.body(x[rows])
        loss = cross_entropy(network.head(features), y[rows])
        loss = loss + LAM * proto_distance(features, y[rows], *server)
        step(loss, params)
    network.eval()
    with torch.no_grad():
        for rows in torch.arange(ROWS).split(BATCH):
            sums = class_sums(network.body(x[rows]), y[rows])
            torch._foreach_add_(total, sums)


def class_sums(features: torch.Tensor, y: torch.Tensor) -> Parameters:
    """(the sum of the features of each class, its number of rows)."""
    member = nn.functional.one_hot(y, CLASSES).to(features.dtype)
    return [member.T @ features, member.sum(0)]


def proto_distance(
    features: torch.Tensor, y: torch.Tensor, known: torch.Tensor, count: torch.Tensor
) -> torch.Tensor:
    """sum_j ||C_k^j - C^j|| over the classes of the batch whose C^j is known."""
    total, rows = class_sums(features, y)
    both = (rows > 0) & (count > 0)
    own = total[both] / rows[both, None]
    return torch.linalg.vector_norm(own - known[both], dim=1).sum()


def proto_aggregate(server: Parameters, totals: list[Parameters]) -> None:
    """The means over the rows of all clients; a class without rows stays."""
    prototypes, counts = server
    total = sum(sent[0] for sent in totals)
    rows = sum(sent[1] for sent in totals)
    some = rows > 0
    prototypes[some] = total[some] / rows[some, None]
    counts[some] = rows[some]


def fml_init(network: Network) -> Parameters:
    """The meme's parameters."""
    return list(network.parameters())


def fml_train(
    network: Network, proxy: Network, data: Rows, server: Parameters, total: Parameters
) -> None:
    """An epoch of FML, both models moving at once; adds the meme's parameters."""
    x, y = data
    params = list(network.parameters())
    meme = list(proxy.parameters())
    network.train()
    proxy.train()
    with torch.no_grad():
        torch._foreach_copy_(meme, server)
    for rows in torch.randperm(ROWS).split(BATCH):
        own = network(x[rows])
        taught = proxy(x[rows])
        loss = ALPHA * cross_entropy(own, y[rows])
        loss = loss + (1 - ALPHA) * divergence(taught, own)
        loss = loss + BETA * cross_entropy(taught, y[rows])
        loss = loss + (1 - BETA) * divergence(own, taught)
        step(loss, [*params, *meme])
    with torch.no_grad():
        torch._foreach_add_(total, meme)


def divergence(target: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Mean over the rows of KL(target || logits), of constant targets."""
    fixed = softmax(target.detach(), dim=1)
    return kl_div(log_softmax(logits, dim=1), fixed, reduction="batchmean")


def fml_aggregate(server: Parameters, totals: list[Parameters]) -> None:
    """The uniform mean of all memes."""
    torch._foreach_zero_(server)
    for total in totals:
        torch._foreach_add_(server, total, alpha=1 / CLIENTS)


METHODS: dict[str, Method] = {
    "fedproto": Method(proto_init, proto_train, proto_aggregate),
    "fml": Method(fml_init, fml_train, fml_aggregate),
}


def start(workload: str, method: str, processes: int, threads: int) -> list[Shared]:
    """Processes that wait for a round."""
    server = shared(METHODS[method].init(smallest(workload)))
    context = multiprocessing.get_context("spawn")
    workers = []
    for clients in deal(workload, processes):
        ours, theirs = context.Pipe()
        total = shared([torch.zeros_like(part) for part in server])
        arguments = (workload, method, clients, threads, Shared(server, total, theirs))
        context.Process(target=work, args=arguments, daemon=True).start()
        workers.append(Shared(server, total, ours))
    return workers


@torch.no_grad()
def one_round(method: str, workers: list[Shared]) -> None:
    """All clients train, and the server gets what they send."""
    for worker in workers:
        worker.calls.send(True)
    for worker in workers:
        worker.calls.recv()
    totals = [worker.total for worker in workers]
    METHODS[method].aggregate(workers[0].server, totals)


def main(
    workload: Positional[Literal["W8", "W9"]],
    method: Positional[Literal["fedproto", "fml"]] = "fedproto",
    processes: int = 2,
    threads: int = 1,
    rounds: int = 3,
) -> None:
    """Times some rounds after one of warm-up; `threads` are those of each process."""
    workers = start(workload, method, processes, threads)
    one_round(method, workers)
    started = time.perf_counter()
    for _ in range(rounds):
        one_round(method, workers)
    seconds = time.perf_counter() - started
    for worker in workers:
        worker.calls.send(None)
    steps = rounds * CLIENTS * ROWS // BATCH
    print("JSON", json.dumps({"client_steps_per_s": steps / seconds}))


if __name__ == "__main__":
    tyro.cli(main)
