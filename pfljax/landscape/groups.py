"""The loss within a group of models: at its barycentre, and of random convex sums."""

from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import ClientData, Params, Task
from pfljax.evaluation.over_clients import is_greater_better
from pfljax.landscape.curves import mix
from pfljax.landscape.lines import Options, evaluate_mixtures


class Group(NamedTuple):
    """Metrics of n models and of their convex sums."""

    weights: np.ndarray  # f64[1 + P, n]: the barycentre, and P random sums
    metrics: dict[str, np.ndarray]  # of these, f32[1 + P]
    models: dict[str, np.ndarray]  # of the models themselves, f32[n]


def group(
    task: Task,
    models: Params,
    data: ClientData,
    *,
    draws: int = 100,
    seed: int = 0,
    **options: Unpack[Options],
) -> Group:
    """Metrics at the barycentre of n models and at `draws` convex sums of them.

    Weights are drawn uniformly from the simplex, as in Wortsman et al., ICML 2021,
    https://arxiv.org/abs/2102.10472 (Section 3). `models` are stacked [n, ...], and
    `data` and `train` are of one client; the other arguments are those of `line`.
    """
    count = len(jax.tree.leaves(models)[0])
    drawn = np.random.default_rng(seed).dirichlet(np.ones(count), draws)
    weights = np.concatenate([np.full((1, count), 1 / count), drawn])

    def evaluate(models: Params, keep: bool) -> dict[str, np.ndarray]:
        alone = {"models": models}, np.ones((1, 1)), data
        metrics = evaluate_mixtures(task, *alone, keep=np.array([keep]), **options)
        return {name: values[:, 0] for name, values in metrics.items()}

    # At most as many sums at a time as there are models.
    blocks = np.array_split(weights.astype(np.float32), -(-len(weights) // count))
    sums = [evaluate(mix(models, jnp.asarray(block)), keep=False) for block in blocks]
    metrics = jax.tree.map(lambda *parts: np.concatenate(parts), *sums)
    return Group(weights=weights, metrics=metrics, models=evaluate(models, keep=True))


def group_barrier(group: Group, metric: str = "loss") -> np.ndarray:
    """The excess of each sum over the same sum of the models' values, f64[1 + P].

    For an accuracy it is the drop below it. The first, of the barycentre, measures the
    group connectivity of Li et al., 2024, https://arxiv.org/abs/2402.18949. It may be
    negative.
    """
    straight = group.weights @ np.asarray(group.models[metric], np.float64)
    excess = group.metrics[metric] - straight
    return -excess if is_greater_better(metric) else excess
