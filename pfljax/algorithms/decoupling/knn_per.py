"""kNN-Per: clients predict with the shared model and their nearest examples.

Marfoq et al., ICML 2022, https://arxiv.org/abs/2111.09360.

    Server   w                Client  nothing
    Message  w                Upload  that of FedAvg

Training is FedAvg. To predict, client k looks up the `neighbours` of its own training
examples whose features z_i are nearest to z(x). With d_i = ||z(x) - z_i||,

    p_knn(y) = sum_{y_i = y} exp(-d_i^2 / (e sigma)) / sum_i exp(-d_i^2 / (e sigma)),
    p(y | x) = lam p_knn(y) + (1 - lam) softmax(w(x))_y,

where e is the number of features. A client that never took part does the same. The
predicted logits are log p.

FL-bench mixes p_knn with logits. The authors choose lam from results on test examples.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms._example_outputs import compute_outputs
from pfljax.algorithms.fedavg import fedavg
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Positive, Share
from pfljax.core.requirements import require
from pfljax.core.types import Algorithm, Local, Params, Task


class Model(NamedTuple):
    """The shared model, and a client's examples."""

    w: Params
    z: Any  # f32[n, e]
    y: Any  # i32[n]
    known: Any  # bool[n], False for padding


@component
def knn_per(
    task: Task,
    local: Local,
    *,
    lam: Share = 0.5,
    neighbours: AtLeastOne = 5,
    sigma: Positive = 1.0,
    max_examples: AtLeastOne = 100,
) -> Algorithm:
    """Builds kNN-Per; `lam` = 0 is FedAvg.

    Args:
      lam: weight of the nearest examples in the prediction.
      neighbours: the number of nearest examples; a client with fewer takes all.
      sigma: scale of squared distances, per feature.

    Raises:
      ValueError: no client has as many examples as `neighbours`.
    """
    enough = neighbours <= max_examples
    expected = f"at most {max_examples}, the training examples of the largest client"
    require("knn_per: neighbours", neighbours, enough, expected)

    def features(w, batch):
        z = task.features(w, batch, None)
        return z.reshape(len(z), -1)

    def personal(turn, w, client, data):
        number = jnp.arange(max_examples)
        index = jnp.minimum(number, jnp.maximum(data.size - 1, 0))

        def value(batch):
            return features(w, batch), batch.y

        z, y = compute_outputs(value, data, index, local.batch_size)
        return Model(w, z, y, number < data.size)

    def predict(model, batch):
        z = features(model.w, batch)
        logits = task.head(model.w, z.reshape(-1, *task.feature_shape))
        # By differences: |a|^2 + |b|^2 - 2ab cancels if they are close.
        square = jnp.sum((z[:, None] - model.z) ** 2, -1)
        far = jnp.where(model.known, square, jnp.inf)
        nearest, place = jax.lax.top_k(-far, neighbours)
        known = jnp.isfinite(nearest)
        scaled = jnp.where(known, nearest / (z.shape[1] * sigma), -jnp.inf)
        # The nearest has exponent 0, so that the sum does not vanish.
        weight = jnp.where(known, jnp.exp(scaled - scaled[:, :1]), 0)
        weight /= jnp.maximum(weight.sum(1, keepdims=True), 1)
        votes = jax.nn.one_hot(model.y[place], task.num_classes)
        by_examples = jnp.sum(weight[..., None] * votes, 1)
        p = lam * by_examples + (1 - lam) * jax.nn.softmax(logits)
        return jnp.log(jnp.maximum(p, jnp.finfo(jnp.float32).tiny))

    return fedavg(task, local)._replace(
        personal=personal, predict=predict, classes=True, parts=("body", "head")
    )
