"""The cases of the figures of the FedProx paper: methods, data and stragglers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SHARES = (0.0, 0.5, 0.9)  # of stragglers
BEST_MU = 1.0  # of the paper's grid, on synthetic data and MNIST alike
BEST_MUS = {"shakespeare": 0.001}  # where it is another
MUS = (0.001, 0.01, 0.1, 1.0)  # the paper's grid


class Case(NamedTuple):
    """A curve: who trains how on which data."""

    dataset: str
    label: str
    method: str = "fedavg"
    hyper: tuple[tuple[str, Any], ...] = ()
    stragglers: float = 0.0
    drop: bool = False
    epochs: int | None = None  # None for the scale's
    selection: str = "uniform"


def fedavg(dataset: str, stragglers: float = 0.0, **more: Any) -> Case:
    """FedAvg, which drops stragglers."""
    return Case(dataset, "FedAvg", stragglers=stragglers, drop=stragglers > 0, **more)


def fedprox(dataset: str, mu: float, stragglers: float = 0.0, **more: Any) -> Case:
    """FedProx, which keeps what stragglers did."""
    # Without stragglers mu = 0 is FedAvg: one run for both.
    if mu == 0 and not stragglers:
        return fedavg(dataset, **more)._replace(label="FedProx, mu = 0")
    hyper = (("mu", mu),)
    label = f"FedProx, mu = {mu:g}"
    return Case(dataset, label, "fedprox", hyper, stragglers, **more)


def three_methods(
    datasets: Sequence[str],
    shares: Sequence[float],
    best: Mapping[str, float] | None = None,
    **more: Any,
) -> list[Case]:
    """FedAvg, FedProx of mu = 0 and of the paper's best mu, by data and stragglers.

    `best` has a mu of a data set that stands beside the paper's, if it is another.
    """
    cases = []
    for dataset in datasets:
        of_paper = BEST_MUS.get(dataset, BEST_MU)
        mus = dict.fromkeys([of_paper, (best or {}).get(dataset, of_paper)])
        for share in shares:
            cases.append(fedavg(dataset, share, **more))
            # Without stragglers FedProx of mu = 0 is FedAvg.
            if share:
                cases.append(fedprox(dataset, 0.0, share, **more))
            cases += [fedprox(dataset, mu, share, **more) for mu in mus]
    return cases
