"""PyTorch on a GPU: the peer that `experiments/speed/gpu.py` starts and asks.

It reads a line of JSON for each call, and answers with one. It has two forms: "loop"
trains one client after another, and "vmap" stacks the models of the cohort under
`torch.func.vmap`, where clients with fewer steps leave the stack when they are done.
All examples are on the GPU. Sizes and layers are those of `pfljax.bench.catalogue` and
`pfljax.models`. The methods are written by hand: FedAvg; Ditto (Li et al., ICML 2021,
Algorithm 1); SuPerFed-MM (Hahn et al., KDD 2022, Algorithm 1); FedPer (Arivazhagan et
al., 2019); and FedProto and FML of `torch_groups`.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch_groups
from torch.nn.functional import cross_entropy
from torch_models import MODELS
from torch_workloads import Parameters

from pfljax.bench.catalogue import WORKLOADS, Workload
from pfljax.bench.workloads import sizes

LAM = 0.1  # of Ditto
MU = 0.01  # of SuPerFed: to the server's model
NU = 2.0  # of SuPerFed: between the two models


class Federation:
    """The rows of all clients on the GPU, random, and the server's model."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        count = workload.pool or int(sizes(workload).sum())
        shape = workload.shape
        if len(shape) == 3:
            shape = (shape[2], *shape[:2])
        self.x = torch.randn(count, *shape)
        if workload.vocab is not None:
            self.x = torch.randint(workload.vocab, (count, *shape))
        self.y = torch.randint(workload.num_classes, (count,))
        self.model = MODELS[workload.model]()
        self.params = list(self.model.parameters())
        self.server = [part.detach().clone() for part in self.params]
        self.own: dict[int, Parameters] = {}
        size = sizes(workload)
        self.size = size.tolist()
        offset = np.cumsum(size) - size
        if workload.pool is not None:
            # Clients wrap around it, and none reaches beyond its end.
            offset %= workload.pool - size.max() + 1
        self.offset = offset.tolist()

    def steps(self, client: int) -> int:
        """Steps of the client in a round."""
        batches = -(-self.size[client] // self.workload.batch_size)
        return self.workload.epochs * batches

    def order(self, client: int) -> torch.Tensor:
        """Numbers of the client's rows, [epochs, rows]: each epoch shuffled anew."""
        draws = torch.rand(self.workload.epochs, self.size[client])
        return self.offset[client] + draws.argsort(1)

    def batches(self, client: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The minibatches of a turn."""
        for epoch in self.order(client):
            for rows in epoch.split(self.workload.batch_size):
                yield self.x[rows], self.y[rows]


Train = Callable[[Federation, int], None]  # from the server's model, in place


def descend(federation: Federation, loss: torch.Tensor, params: Parameters) -> None:
    """A step of plain SGD, in place."""
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        rate = -federation.workload.learning_rate
        torch._foreach_add_(params, grads, alpha=rate)


def fedavg(federation: Federation, client: int) -> None:
    """Local SGD."""
    for x, y in federation.batches(client):
        loss = cross_entropy(federation.model(x), y)
        descend(federation, loss, federation.params)


def ditto(federation: Federation, client: int) -> None:
    """Local SGD; then as much of the client's own model, pulled to the server's."""
    fedavg(federation, client)
    params = federation.params
    upload = [part.detach().clone() for part in params]
    own = federation.own.setdefault(client, federation.server)
    with torch.no_grad():
        torch._foreach_copy_(params, own)
    rate = federation.workload.learning_rate
    for x, y in federation.batches(client):
        with torch.no_grad():
            away = torch._foreach_sub(params, federation.server)
        descend(federation, cross_entropy(federation.model(x), y), params)
        with torch.no_grad():
            torch._foreach_add_(params, away, alpha=-rate * LAM)
    federation.own[client] = [part.detach().clone() for part in params]
    with torch.no_grad():
        torch._foreach_copy_(params, upload)


def superfed(federation: Federation, client: int) -> None:
    """Both ends of the line between the server's model and the client's own."""
    names = [name for name, _ in federation.model.named_parameters()]
    start = federation.own.get(client)
    if start is None:
        start = [0.05 * torch.randn_like(part) for part in federation.server]
    own = [part.clone().requires_grad_() for part in start]
    params = federation.params
    for x, y in federation.batches(client):
        lam = torch.rand(())
        mixed = [torch.lerp(a, b, lam) for a, b in zip(params, own, strict=True)]
        called = dict(zip(names, mixed, strict=True))
        loss = cross_entropy(torch.func.functional_call(federation.model, called, x), y)
        pairs = zip(params, federation.server, strict=True)
        near = sum((a - w).square().sum() for a, w in pairs)
        dot = sum((a * b).sum() for a, b in zip(params, own, strict=True))
        norms = [sum(part.square().sum() for part in end) for end in (params, own)]
        cosine = dot.square() / (norms[0] * norms[1])
        descend(federation, loss + MU * near + NU * cosine, [*params, *own])
    federation.own[client] = [part.detach() for part in own]


def fedper(federation: Federation, client: int) -> None:
    """Local SGD of a model whose last layer is the client's own."""
    head = federation.params[-2:]
    with torch.no_grad():
        torch._foreach_copy_(head, federation.own.get(client, head))
    fedavg(federation, client)
    federation.own[client] = [part.detach().clone() for part in head]


TRAIN: dict[str, Train] = {
    "fedavg": fedavg,
    "ditto": ditto,
    "superfed": superfed,
    "fedper": fedper,
}


def loop(federation: Federation, train: Train, cohort: list[int]) -> None:
    """A round of FedAvg's kind, one client after another."""
    rows = sum(federation.size[client] for client in cohort)
    total = [torch.zeros_like(part) for part in federation.server]
    for client in cohort:
        with torch.no_grad():
            torch._foreach_copy_(federation.params, federation.server)
        train(federation, client)
        with torch.no_grad():
            share = federation.size[client] / rows
            torch._foreach_add_(total, federation.params, alpha=share)
    federation.server = total


def stacked(federation: Federation, train: Train, cohort: list[int]) -> None:
    """A round of FedAvg, the cohort under one vmap; whoever is done leaves it."""
    cohort = sorted(cohort, key=federation.steps, reverse=True)
    steps = [federation.steps(client) for client in cohort]
    batch = federation.workload.batch_size
    rows = torch.zeros(steps[0], len(cohort), batch, dtype=torch.long)
    for place, client in enumerate(cohort):
        order = federation.order(client).reshape(-1, batch)
        rows[: steps[place], place] = order
    names = [name for name, _ in federation.model.named_parameters()]
    parts = [w.expand(len(cohort), *w.shape).clone() for w in federation.server]

    def loss(params: dict[str, torch.Tensor], x: Any, y: Any) -> torch.Tensor:
        return cross_entropy(torch.func.functional_call(federation.model, params, x), y)

    gradient = torch.func.vmap(torch.func.grad(loss), randomness="different")
    for step in range(steps[0]):
        left = sum(count > step for count in steps)
        active = [part[:left] for part in parts]
        seen = rows[step, :left]
        params = dict(zip(names, active, strict=True))
        grads = gradient(params, federation.x[seen], federation.y[seen])
        rate = -federation.workload.learning_rate
        torch._foreach_add_(active, [grads[name] for name in names], alpha=rate)
    share = torch.tensor([float(federation.size[client]) for client in cohort])
    share /= share.sum()
    federation.server = [torch.tensordot(share, part, 1) for part in parts]


FORMS = {"loop": loop, "vmap": stacked}


class Groups(NamedTuple):
    """A round of W8 or W9, whose clients have several architectures."""

    method: torch_groups.Method
    networks: list[torch_groups.Network]
    rows: list[torch_groups.Rows]
    proxy: torch_groups.Network
    server: Parameters

    @classmethod
    def of(cls, workload: str, method: str) -> "Groups":
        """New models, rows and a server."""
        group = torch_groups.GROUPS[workload]
        clients = range(torch_groups.CLIENTS)
        proxy = torch_groups.smallest(workload)
        chosen = torch_groups.METHODS[method]
        return cls(
            method=chosen,
            networks=[group[client % len(group)].make() for client in clients],
            rows=[torch_groups.random_rows() for _ in clients],
            proxy=proxy,
            server=[part.detach().clone() for part in chosen.init(proxy)],
        )

    def round(self) -> None:
        """All clients train, one after another."""
        total = [torch.zeros_like(part) for part in self.server]
        for network, rows in zip(self.networks, self.rows, strict=True):
            self.method.train(network, self.proxy, rows, self.server, total)
        with torch.no_grad():
            self.method.aggregate(self.server, [total])


def rounds_of(workload: str, method: str, form: str) -> Callable[[list[int]], None]:
    """What trains a cohort for a round."""
    if workload in torch_groups.GROUPS:
        groups = Groups.of(workload, method)
        return lambda cohort: groups.round()
    federation = Federation(WORKLOADS[workload])
    return lambda cohort: FORMS[form](federation, TRAIN[method], cohort)


def answer(asked: dict[str, Any], made: dict[tuple, Any]) -> dict[str, Any]:
    """The seconds of the cohorts' rounds; before the first call one warms up."""
    tf32 = asked["precision"] == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    case = (asked["workload"], asked["method"], asked["form"])
    if case not in made:
        made.clear()
        torch.cuda.empty_cache()
        train = rounds_of(*case)
        # A loop is warm after one client, a stack after one of this width.
        warm = 1 if asked["form"] == "loop" else None
        train(asked["cohorts"][0][:warm])
        made[case] = train
    torch.cuda.synchronize()
    start = time.perf_counter()
    for cohort in asked["cohorts"]:
        made[case](cohort)
    torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - start, "torch": torch.__version__}


def main() -> None:
    """Answers until there is no further line."""
    torch.set_default_device("cuda")
    made: dict[tuple, Any] = {}  # of one case at a time, for the GPU's memory
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), made)
        except Exception as error:  # told to whoever asked: the next may go well
            reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
