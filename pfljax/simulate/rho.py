"""rho of FedProx's Theorem 4, for runs with the settings of its constants."""

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

REQUIRED = ("gamma", "mu")  # metrics of the cohort's training


def check(
    experiment: Experiment,
    setting: Setting,
    task: Task,
    shape: Shape,
) -> None:
    """Refuses the constants of rho if the method or its mu has no rho."""
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
    if not set(REQUIRED) <= set(reported):
        raise ValueError(
            "smoothness asks for rho, which needs the metrics gamma and mu, but "
            f"{method} reports {', '.join(sorted(reported))}; leave it out, or choose "
            "a method that reports both, such as fedprox:mu=1.0,inexactness=True"
        )
    mu = experiment.algorithm.options.get("mu", 0.0)
    # An adaptive mu may rise above it.
    if method == "fedprox" and mu <= experiment.concavity:
        raise ValueError(
            f"mu is {mu}, but rho needs a mu above concavity, which is "
            f"{experiment.concavity}; choose a larger mu, or leave smoothness out"
        )


def round_rho(
    experiment: Experiment, measured: Dissimilarity, trained: Line
) -> dict[str, float]:
    """Returns {"rho": rho} of a round, or {} if its constants are not set.

    It is NaN where the theorem does not hold: if a number is not finite, or if mu is
    not above the concavity.

    Args:
      experiment: the settings.
      measured: the dissimilarity B, measured after the round.
      trained: the metrics that the cohort reported.
    """
    if experiment.smoothness is None:
        return {}
    b = float(measured.b)
    # The log has None for a number that is not finite.
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
