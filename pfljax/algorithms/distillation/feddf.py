"""FedDF: the server distils the ensemble of the clients' models on public examples.

Lin, Kong, Stich, Jaggi, NeurIPS 2020, https://arxiv.org/abs/2006.07242 (Algorithm 3).

    Server   w_g, a model of each architecture g
    Client   nothing
    Message  w_g of the client's architecture     Upload  w_k, w_g after local training

Let S be the cohort, and p the softmax outputs. The server starts the model of each
architecture at the mean of its uploads, x <- sum_k n_k w_k / sum_k n_k, and takes
`server_steps` of Adam on the public examples d, whose labels it does not use, down
KL(p of mean_k in S f_k(d) || p of f_x(d)).
All uploads of all architectures are teachers, in evaluation mode. The rate follows a
cosine to 0, and gradients are clipped at the norm `clip`. An architecture without
uploads keeps its model. Client k is evaluated with the model of its architecture.

Differs from the paper, which stops early by a separate set of labelled examples; here
all steps are taken.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms._example_outputs import compute_outputs, number_examples
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, public_examples, statistics, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import divergence
from pfljax.core.minibatches import each_minibatch
from pfljax.core.ranges import AtLeastOne, Count, NotNegative, Positive
from pfljax.core.types import Algorithm, Local, Task


@component
def feddf(
    task: Task,
    local: Local,
    *,
    server_steps: Count = 1000,
    server_lr: NotNegative = 1e-3,
    server_batch_size: AtLeastOne = 128,
    clip: Positive = 5.0,
    num_public: Count = 1,
) -> Algorithm:
    """Builds FedDF; `server_steps` = 0 with one architecture is FedAvg.

    Args:
      server_steps: distillation steps in each round; 0 is FedAvg.
      server_lr: first rate of the server's Adam, which follows a cosine.
      server_batch_size: examples in a step of the server.
      clip: largest norm of a gradient at the server.

    Raises:
      ValueError: there are no public examples.
    """
    public_examples.require_public("feddf", num_public)
    tasks = task.peers or (task,)
    schedule = optax.cosine_decay_schedule(server_lr, max(server_steps, 1))
    adam = optax.chain(optax.clip_by_global_norm(clip), optax.adam(schedule))
    distil = distilling(statistics.beside(adam), server_steps, server_batch_size)

    def init(params, num_clients, key):
        key = derive(key, "models")
        models = [peer.init(key) for peer in tasks]
        models[task.number] = params
        return tuple(models)

    method = fedavg(task, local)._replace(
        classes=True,
        init=init,
        message=lambda turn, models, client: models[task.number],
        aggregate=fusing(tasks, distil, server_batch_size),
        architecture=task.number,
        uploads_by_client=True,
    )
    if len(tasks) == 1:
        return method._replace(server_model=lambda models: models[0])
    return method._replace(
        server_model=None,
        personal=lambda turn, models, client, data: models[task.number],
    )


def fusing(tasks, distil, batch_size):
    """The `aggregate`: a student of each architecture with uploads, from their mean."""

    def aggregate(models, uploads, cohort):
        senders = aggregation.senders(cohort)
        # Without labels: a minibatch has the numbers of its examples instead.
        pool = number_examples(cohort.public)
        target = mean_logits(tasks, uploads, senders, pool, batch_size)
        after = list(models)
        # The ensemble of one client is its own model: there is nothing to distil, and
        # Adam would take rounding for a gradient.
        distils = jnp.sum(cohort.mask > 0) > 1
        for number, sent in uploads.items():
            weight = aggregation.by_examples(senders[number])
            start = aggregation.mean(sent, weight)
            key = derive(cohort.key, f"student {number}")
            student = distil(tasks[number], start, pool, target, key)
            student = tree.where(distils, student, start)
            after[number] = tree.where(weight.sum() > 0, student, models[number])
        return tuple(after)

    return aggregate


def distilling(optimizer, steps, batch_size):
    """(task, params, numbered examples, target logits [P, K], key) -> a student."""

    def distil(task, start, pool, target, key):
        def objective(params, batch, key):
            logits = task.logits(params, batch, key)
            return divergence(target[batch.y], logits, batch)

        def step(index, batch, carry):
            params, moments = carry
            step_key = jax.random.fold_in(key, index)
            grads = jax.grad(objective)(params, batch, step_key)
            updates, moments = optimizer.update(grads, moments, params)
            return optax.apply_updates(params, updates), moments

        carry = start, optimizer.init(start)
        count = jnp.int32(steps)
        student, _ = each_minibatch(step, carry, pool, count, key, batch_size)
        return student

    return distil


def mean_logits(tasks, uploads, senders, public, batch_size):
    """The mean logits of all uploads for each of the public examples, f32[P, K]."""
    # Gathered once, so that every batch of examples has all models.
    teachers = {
        number: aggregation.gather(sent, senders[number])
        for number, sent in uploads.items()
    }
    count = sum(jnp.sum(aggregation.uniform(who)) for _, who in teachers.values())

    def batch_logits(batch):
        total = 0.0
        for number, (sent, who) in teachers.items():
            predict = partial(tasks[number].predict, batch=batch)
            # One after another: the logits of all are small, but their layers are not.
            logits = jax.lax.map(predict, sent)
            weight = aggregation.uniform(who)
            total += jnp.tensordot(weight, logits, 1, precision="highest")
        return total / jnp.maximum(count, 1)

    every = jnp.arange(len(public.examples.y))
    return compute_outputs(batch_logits, public, every, batch_size)
