"""pFedBayes: clients have posteriors whose shared prior the server learns.

Zhang et al., ICML 2022, https://arxiv.org/abs/2206.07977

    Server   w = N(mu, sigma^2), the shared prior
    Client   q_k, the posterior of this client, of the same form
    Message  w                Upload  w_k, the prior after local training

Let F_k(w) = min_q E_q[-log p(D_k)] + zeta KL(q || w). The server minimises the mean of
the F_k. Both q_k, which is kept from round to round, and w_k, which starts from w,
descend that sum: q_k by the examples and the divergence, w_k by the divergence alone.
The server takes the uniform mean of mu_k and of rho_k, where sigma = log(1 + exp(rho)).
Client k is evaluated with q_k, or with w before it first takes part.

Differs from the paper: both take one simultaneous step on each minibatch, and the sum
is divided by n_k, so that its loss is that of one example. Both are stepped by an Adam
that starts afresh in each round, since the gradient of KL grows as 1 / sigma^2. Its
rate is `posterior_lr`: the optimizer of the run, its rate and its schedule have no
effect. Running statistics of w_k are those of q_k, because no
example reaches w_k.
"""

from functools import partial

import jax.numpy as jnp
import optax

from pfljax.algorithms import _raveled as raveled
from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import AtLeastOne, Count, Deviation, NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


@component
def pfedbayes(
    task: Task,
    local: Local,
    *,
    zeta: NotNegative = 10.0,
    scale: Deviation = 0.08,
    posterior_lr: NotNegative = 1e-3,
    samples: AtLeastOne = 1,
    draws: Count = 0,
) -> Algorithm:
    """Builds pFedBayes; `zeta` = 0 leaves w as it is, and trains every q_k alone.

    w and all q_k start at the same means. If standard deviations stay at s, q_k is
    pulled to w like v_k in Ditto with lam = zeta / (n_k s^2). A client is evaluated
    with the mean of q_k, or with the mean probabilities of `draws` models drawn from
    it.

    Args:
      zeta: weight of the divergence from the server's distribution.
      scale: first standard deviation.
      posterior_lr: rate of Adam on a client's distribution.
      samples: models drawn in each step.
      draws: models drawn for an evaluation; 0 for the mean.
    """
    adam = local._replace(learning_rate=posterior_lr, optimizer=optax.adam)
    in_leaves = partial(gaussian.map_leaves, raveled.unraveling(task))

    def init_client(params, client_id, key):
        # As vectors, which compile faster.
        return gaussian.around(raveled.ravel(params), scale)

    def predictive(turn, q):
        return gaussian.predictive(q, None, derive(turn.key, "draws"), draws)

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: gaussian.around(params, scale),
        init_client=init_client,
        train=training(task, adam, zeta, samples),
        work=lambda steps, size, is_first: samples * steps,
        aggregate=aggregation.averaging("uniform"),
        server_model=lambda w: w.mean,
        personal=lambda turn, w, q, data: predictive(turn, in_leaves(q)),
        newcomer=lambda turn, w, data: predictive(turn, w),
        predict=gaussian.predicting(task, task.predict),
        origin=lambda w, q, upload: copy_statistics(in_leaves(q), w),
    )


def training(task, adam, zeta, samples):
    """The `train` of pFedBayes; q_k is kept as vectors."""
    of_vectors = raveled.ravel_task(task)
    in_leaves = partial(gaussian.map_leaves, raveled.unraveling(task))

    def loss(pair, batch, key):
        q, _ = pair

        def model_loss(model):
            return of_vectors.loss(model, batch, key)

        # Derived: the key itself is that of dropout.
        return gaussian.expectation(model_loss, q, derive(key, "draws"), samples)

    def train(turn, w, q, data):
        examples = jnp.maximum(data.size, 1)

        def penalty(pair):
            return zeta / examples * gaussian.kl(*pair)

        start = q, gaussian.map_leaves(raveled.ravel, w)
        (q, w), metrics = fit(loss, start, data, turn, adam, penalty=penalty)
        return q, in_leaves(copy_statistics(q, w)), metrics

    return train


def copy_statistics(q, w):
    """w with the running statistics of q."""
    theirs, _ = tree.split(q.mean, statistics.mask(q.mean))
    return w._replace(mean=tree.merge(theirs, tree.parameters(w.mean)))
