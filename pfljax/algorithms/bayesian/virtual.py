"""VIRTUAL: variational federated multi-task learning by expectation propagation.

Corinzia, Beuret, Buhmann, 2019, https://arxiv.org/abs/1906.06268

    Server   s, the posterior of the shared parameters
    Client   t_k, its factor of s; q_k, the posterior of its private ones; a gate g_k
    Message  s                Upload  the change of s

In natural parameters, in which products are sums, s = sum_k c t_k with c = 1 / C for C
clients. Client k replaces its own factor by the prior's share: the cavity prior is
p = s - c t_k + c N(0, 1).  From q = s it minimises
E[f_k] + kl_weight / n_k (KL(q || p) + KL(q_k || N(0, 1))),
where the logits are those of q plus g_k times those of the private model. It sends the
change damping (q - s), and adds this over c to t_k. The server adds up the changes. A
factor is never less precise than the prior's share: where q is less precise than p, it
takes the precision of p. Client k is evaluated with s and its private path. The server,
and clients that never took part, are evaluated without that path.

Differs from the paper: the paths join at the logits instead of at every layer, and c
counts clients instead of examples. Both sides of s = sum_k c t_k are damped alike. The
steps are those of an Adam that starts afresh in each round, on means and spreads. Its
rate is `posterior_lr`: the optimizer of the run, its rate and its schedule have no
effect. Running statistics are averaged.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms import _raveled as raveled
from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.algorithms.bayesian import _lateral as lateral
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import Count, NotNegative, Share
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Array, Local, Task, zero_origin

STD = 0.05  # of the first posteriors


class Client(NamedTuple):
    """The state of a client, in vectors; `private` has no leaves without that path."""

    site: gaussian.Natural
    private: gaussian.Gaussian
    gate: Array  # f32[K]


@component
def virtual(
    task: Task,
    local: Local,
    *,
    kl_weight: NotNegative = 1e-2,
    damping: Share = 0.1,
    private: bool = True,
    posterior_lr: NotNegative = 1e-3,
    draws: Count = 0,
) -> Algorithm:
    """Builds VIRTUAL; with one client and without `private` it is Bayes by backprop.

    With `damping` = 1 / M for M clients a round, and precisions that do not change, the
    server's means are those of uniform FedAvg. Clients are evaluated with means, or
    with the mean probabilities of `draws` models.

    Args:
      kl_weight: weight of the divergence.
      damping: share of a change that is applied.
      private: whether clients also have a model of their own.
      posterior_lr: rate of Adam.
      draws: models drawn for an evaluation; 0 for the means.
    """
    adam = local._replace(learning_rate=posterior_lr, optimizer=optax.adam)
    in_leaves = partial(gaussian.map_leaves, raveled.unraveling(task))

    def predictive(turn, s, path, gate):
        both = lateral.paths(gaussian.gaussian(s), path)
        fixed = lateral.Lateral(shared=None, private=None, gate=gate)
        return gaussian.predictive(both, fixed, derive(turn.key, "draws"), draws)

    def personal(turn, s, client, data):
        return predictive(turn, s, in_leaves(client.private), client.gate)

    def newcomer(turn, s, data):
        # Any private model: a gate of zeros hides it.
        path = gaussian.gaussian(s) if private else gaussian.around((), STD)
        return predictive(turn, s, path, jnp.zeros(task.num_classes))

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: first_posterior(params),
        init_client=partial(first_client, task, private),
        train=training(task, adam, kl_weight, damping),
        work=lambda steps, size, is_first: (1 + private) * steps,
        aggregate=aggregate,
        server_model=lambda s: gaussian.gaussian(s).mean,
        personal=personal,
        newcomer=newcomer,
        predict=gaussian.predicting(task, partial(lateral.logits, task)),
        origin=zero_origin,
        uploads_by_client=True,
    )


def first_posterior(params):
    """s before the first round, and the factors of all clients."""
    return gaussian.natural(gaussian.around(params, STD))


def first_client(task, private, params, client_id, key):
    """A client that has not trained yet."""
    path = raveled.ravel(task.init(derive(key, "private"))) if private else ()
    return Client(
        site=tree.parameters(first_posterior(raveled.ravel(params))),
        private=gaussian.around(path, STD),
        gate=0.1 * jax.random.uniform(derive(key, "gate"), (task.num_classes,)),
    )


def training(task, adam, kl_weight, damping):
    """The `train` of VIRTUAL."""
    loss = partial(drawn_loss, raveled.ravel_task(task))

    def train(turn, message, client, data):
        s = gaussian.Natural(*map(raveled.ravel, message))
        share = 1 / turn.num_clients
        p = cavity_prior(s, client.site, share)
        standard = gaussian.around(tree.zeros(client.private.mean), 1.0)
        priors = lateral.paths(gaussian.gaussian(p), standard)
        weight = kl_weight / jnp.maximum(data.size, 1)

        def penalty(trained):
            return weight * gaussian.kl(trained[0], priors)

        start = lateral.paths(gaussian.gaussian(s), client.private), client.gate
        (q, gate), metrics = fit(loss, start, data, turn, adam, penalty=penalty)
        shared, path = lateral.split_paths(q)
        change = damp(shared, s, p, damping)
        site = tree.axpy(1 / share, tree.parameters(change), client.site)
        upload = gaussian.Natural(*map(raveled.unraveling(task), change))
        return Client(site=site, private=path, gate=gate), upload, metrics

    return train


def drawn_loss(task, trained, batch, key):
    """The loss of both paths, drawn from their posterior."""
    q, gate = trained

    def value(model):
        return lateral.loss(task, model._replace(gate=gate), batch, key)

    # Derived: the key itself is that of dropout.
    return gaussian.expectation(value, q, derive(key, "draws"), 1)


def cavity_prior(s, site, share):
    """s with the prior's share in place of this client's factor."""
    standard = gaussian.natural(gaussian.around(tree.zeros(site.shift), 1.0))
    p = tree.axpy(share, tree.sub(standard, site), tree.parameters(s))
    return gaussian.limit_precision(p, share)


def damp(q, s, p, damping):
    """The damped change from s to q, where q is at least as precise as p."""
    return statistics.scale(tree.sub(gaussian.natural(q, p.precision), s), damping)


def aggregate(s, changes, cohort):
    """s with the sum of all changes; running statistics change by their mean."""
    # By the mask alone: a client drawn twice has one factor.
    summed = tree.parameters(aggregation.weighted_sum(changes, cohort.mask))
    mean = aggregation.mean(changes, aggregation.uniform(cohort))
    followed, _ = tree.split(mean, statistics.mask(mean))
    return gaussian.limit_precision(tree.add(s, tree.merge(summed, followed)), 1)
