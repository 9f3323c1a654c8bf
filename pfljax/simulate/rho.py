"""rho of FedProx's Theorem 4, in runs whose constants are given."""

import math
from typing import Any

import jax

from pfljax.core.communication import first_turn, shapes_of_client
from pfljax.core.types import Task
from pfljax.engine import Setting
from pfljax.evaluation.dissimilarity import Dissimilarity, expected_decrease
from pfljax.runs.log import Line
from pfljax.runs.settings import Experiment
from pfljax.simulate.shape import Shape

NEEDED = ("gamma", "mu")  # metrics of the cohort's training


def check(
    experiment: Experiment,
    setting: Setting,
    task: Task,
    shape: Shape,
) -> None:
    """Refuses constants of rho beside a method or a mu that has none."""
    if experiment.smoothness is None:
        return
    method = experiment.algorithm.name
    algorithm = setting.algorithm

    def metrics(key: Any, data: Any) -> Any:
        server, client, turn = first_turn(algorithm, task, shape.num_clients, key, data)
        message = algorithm.message(turn, server, client)
        return algorithm.train(turn, message, client, data)[2]

    key: Any = jax.eval_shape(jax.random.key, 0)
    reported = jax.eval_shape(metrics, key, shapes_of_client(shape.input_shape))
    if not set(NEEDED) <= set(reported):
        raise ValueError(
            f"smoothness asks for rho, which is of gamma and mu, but {method} reports "
            f"{', '.join(sorted(reported))} as it is; leave it out, or choose one that "
            "reports both, such as fedprox:mu=1.0,inexactness=True"
        )
    mu = experiment.algorithm.options.get("mu", 0.0)
    # Adaptive ones may rise above it.
    if method == "fedprox" and mu <= experiment.concavity:
        raise ValueError(
            f"mu is {mu}, and concavity is {experiment.concavity}: rho is of a mu "
            "above it alone; choose a larger mu, or leave smoothness out"
        )


def round_rho(
    experiment: Experiment, measured: Dissimilarity, trained: Line
) -> dict[str, float]:
    """ "rho", of B as `measured` after a round and what its cohort reported.

    Nothing where no constants are given. NaN where the theorem has none: of numbers
    that are not finite, and of a mu that is not above the concavity.
    """
    if experiment.smoothness is None:
        return {}
    b = float(measured.b)
    # A log has None for what is not finite.
    gamma, mu = trained["train_gamma"], trained["train_mu"]
    if gamma is None or mu is None or not math.isfinite(b):
        return {"rho": math.nan}
    if mu <= experiment.concavity:
        return {"rho": math.nan}
    rho = expected_decrease(
        mu=mu,
        gamma=gamma,
        b=b,
        smoothness=experiment.smoothness,
        cohort=experiment.cohort,
        concavity=experiment.concavity,
    )
    return {"rho": rho}
