"""HypCluster: clients train the cluster model that fits their examples best.

Mansour, Mohri, Ro, Suresh, 2020, https://arxiv.org/abs/2002.10619 (Algorithm 1).

    Server   w_1 .. w_K, each with its optimizer   Client  nothing
    Message  all K models     Upload  the trained parameters and the one-hot choice s_k

Client k takes j = argmin_j F_k(w_j) over all its training examples, and trains w_j. The
server steps w_j by an optimizer of its own along  w_j - sum_k n_k w_k / sum_k n_k,
over the clients that chose j. A cluster that nobody chose keeps its model and its
optimizer. Client k is evaluated with the model of least training loss.

The clients do the same as in IFCA, which averages uniformly and keeps no optimizer.
Differs from the paper: the models start at random, not from clients whose losses differ
most.
"""

import jax

from pfljax.algorithms._models import require_clients
from pfljax.algorithms.clustering.ifca import ifca
from pfljax.core import aggregation, server_step, tree
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Positive
from pfljax.core.server_model import wrap_server
from pfljax.core.types import Algorithm, Local, Task


@component
def hypcluster(
    task: Task,
    local: Local,
    *,
    clusters: AtLeastOne = 2,
    server_lr: Positive = 1.0,
    server_optimizer: str = "sgd",
    num_clients: AtLeastOne | None = None,
) -> Algorithm:
    """Builds HypCluster; by SGD of rate 1, `clusters` = 1 is FedAvg.

    Args:
      clusters: number of models at the server.
      server_lr: rate of the server's optimizer unless that sets its own.

    Raises:
      ValueError: there are more clusters than clients, or the server's optimizer is
        unknown.
    """
    require_clients("hypcluster: clusters", clusters, num_clients)
    clustered = ifca(task, local, clusters=clusters)
    optimizer = server_step.by_name(server_optimizer, server_lr)

    def init(params, num_clients, key):
        models = clustered.init(params, num_clients, key)
        return jax.vmap(lambda w: server_step.first(optimizer, w))(models)

    def aggregate(server, uploads, cohort):
        member = uploads.choice * aggregation.by_examples(cohort)[:, None]
        means = aggregation.segment_mean(uploads.params, member, server.w)

        def step_cluster(server, mean, examples):
            slope = tree.sub(server.w, mean)
            after = server_step.step(optimizer, server, slope)
            # Momentum would move even a model whose gradient is 0.
            return tree.where(examples > 0, after, server)

        return jax.vmap(step_cluster)(server, means, member.sum(0))

    wrapped = wrap_server(clustered, lambda server: server.w)
    return wrapped._replace(init=init, aggregate=aggregate)
