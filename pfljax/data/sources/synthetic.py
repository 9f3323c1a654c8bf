"""FedProx's synthetic data, Li et al. 2020, https://arxiv.org/abs/1812.06127, 5.1."""

import numpy as np

from pfljax.core.factories import validate
from pfljax.core.ranges import AtLeastOne, Count, NotNegative
from pfljax.data.arrays import Arrays, from_arrays

FEATURES = 60
CLASSES = 10


@validate
def synthetic(
    *,
    alpha: NotNegative = 1.0,
    beta: NotNegative = 1.0,
    clients: AtLeastOne = 30,
    seed: Count = 0,
) -> Arrays:
    """Synthetic(alpha, beta): x f32[N, 60], ten classes, one model for each client.

    u_k ~ N(0, alpha), W_k and b_k ~ N(u_k, 1); B_k ~ N(0, beta), v_k ~ N(B_k, 1);
    x ~ N(v_k, diag(j ** -1.2)), y = argmax(x W_k + b_k). As in the authors' code, alpha
    and beta are standard deviations; the paper calls them variances, which is the same
    for 0 and 1. The paper's split is `federate(..., "natural", test=0.1,
    validation=0)`.
    """
    size, rng = _start(clients, seed)
    u = rng.normal(0, alpha, clients)
    centre = rng.normal(0, beta, clients)
    mean = rng.normal(centre[:, None], 1, (clients, FEATURES))
    weight = rng.normal(u[:, None, None], 1, (clients, FEATURES, CLASSES))
    bias = rng.normal(u[:, None], 1, (clients, CLASSES))
    name = f"synthetic({alpha:g}, {beta:g})"
    return _sample(name, size, mean, weight, bias, rng)


@validate
def synthetic_iid(*, clients: AtLeastOne = 30, seed: Count = 0) -> Arrays:
    """Synthetic-IID: sizes of `synthetic`; one W, b ~ N(0, 1) and v = 0 for all."""
    size, rng = _start(clients, seed)
    shared_weight = rng.normal(0, 1, (FEATURES, CLASSES))
    shared_bias = rng.normal(0, 1, CLASSES)
    weight = np.broadcast_to(shared_weight, (clients, FEATURES, CLASSES))
    bias = np.broadcast_to(shared_bias, (clients, CLASSES))
    mean = np.zeros((clients, FEATURES))
    return _sample("synthetic_iid", size, mean, weight, bias, rng)


def _sample(
    name: str,
    size: np.ndarray,
    mean: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    rng: np.random.Generator,
) -> Arrays:
    """Draws size_k examples of each client k around mean_k, labelled by its model."""
    client = np.repeat(np.arange(len(size)), size)
    deviation = np.arange(1, FEATURES + 1) ** -0.6  # Sigma_jj = j ** -1.2
    x = mean[client] + deviation * rng.standard_normal((len(client), FEATURES))
    # It loops over clients, because weights for each example would be 600 numbers.
    y = []
    x_of_client = np.split(x, np.cumsum(size)[:-1])
    for x_k, w, b in zip(x_of_client, weight, bias, strict=True):
        y.append(np.argmax(x_k @ w + b, axis=1))
    return from_arrays(
        x.astype(np.float32),
        np.concatenate(y),
        client=client,
        num_classes=CLASSES,
        name=name,
        source="generated after Li et al. 2020 (FedProx), arXiv 1812.06127",
    )


def _start(clients: int, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    """Draws the sizes i64[C], int(LogNormal(4, 2)) + 50, and returns the generator."""
    rng = np.random.default_rng(seed)
    size = rng.lognormal(4, 2, clients).astype(np.int64) + 50
    return size, rng
