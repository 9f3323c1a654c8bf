"""FedDF. Lin, Kong, Stich, Jaggi, NeurIPS 2020, https://arxiv.org/abs/2006.07242.

    Server   w_g, a model of each architecture g
    Client   nothing
    Message  w_g of the client's architecture     Upload  w_k, w_g after local training
With S the cohort and p the softmax outputs, the server starts the model of each
architecture at the mean of its uploads, x <- sum_k n_k w_k / sum_k n_k, and takes
`server_steps` of Adam on its own rows d, whose labels it does not read (Algorithm 3):
KL(p of mean_k in S f_k(d) || p of f_x(d)).
All uploads of all architectures are teachers, in evaluation mode. The rate follows a
cosine to 0, gradients are cut at the norm `clip`. An architecture that sent nothing
keeps its model. Client k is judged by the model of its architecture.

Differs from the paper: there steps end early where rows with labels, apart from all
others, say so; here all are taken.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms._row_outputs import compute_outputs, number_examples
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, server_rows, statistics, tree
from pfljax.core.keys import derive
from pfljax.core.losses import divergence
from pfljax.core.minibatches import each_minibatch
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import AtLeastOne, Count, NotNegative, Positive, component


@component
def feddf(
    task: Task,
    local: Local,
    *,
    server_steps: Count = 1000,
    server_lr: NotNegative = 1e-3,
    server_batch_size: AtLeastOne = 128,
    clip: Positive = 5.0,
    public_rows: Count = 1,
) -> Algorithm:
    """Builds FedDF; `server_steps` = 0 with one architecture is FedAvg.

    Args:
      server_steps: steps of distillation a round; 0 is FedAvg.
      server_lr: first rate of the server's Adam, which falls by a cosine.
      server_batch_size: rows of a step at the server.
      clip: largest norm of a gradient at the server.

    Raises:
      ValueError: the server has no rows.
    """
    server_rows.require("feddf", public_rows)
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
        init=init,
        message=lambda turn, models, client: models[task.number],
        aggregate=fusing(tasks, distil, server_batch_size),
        architecture=task.number,
    )
    if len(tasks) == 1:
        return method._replace(server_model=lambda models: models[0])
    return method._replace(
        server_model=None,
        personal=lambda turn, models, client, data: models[task.number],
    )


def fusing(tasks, distil, batch_size):
    """The `aggregate`: a student of each architecture that sent, from its mean."""

    def aggregate(models, uploads, cohort):
        senders = aggregation.senders(cohort)
        # Without labels: a minibatch says which rows it has.
        pool = number_examples(cohort.public)
        target = taught(tasks, uploads, senders, pool, batch_size)
        after = list(models)
        for number, sent in uploads.items():
            weight = aggregation.by_examples(senders[number])
            start = aggregation.mean(sent, weight)
            key = derive(cohort.key, f"student {number}")
            student = distil(tasks[number], start, pool, target, key)
            after[number] = tree.where(weight.sum() > 0, student, models[number])
        return tuple(after)

    return aggregate


def distilling(optimizer, steps, batch_size):
    """(task, params, rows that are numbered, their logits [P, K], key) -> a student."""

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


def taught(tasks, uploads, senders, public, batch_size):
    """The mean logits of all that was sent, on each of the server's rows, f32[P, K]."""
    # Once: every batch of rows has all models at hand then.
    teachers = {
        number: aggregation.gather(sent, senders[number])
        for number, sent in uploads.items()
    }
    count = sum(jnp.sum(aggregation.uniform(who)) for _, who in teachers.values())

    def mean_logits(batch):
        total = 0.0
        for number, (sent, who) in teachers.items():
            predict = partial(tasks[number].predict, batch=batch)
            # One after another: the logits of all are small, and their layers are not.
            logits = jax.lax.map(predict, sent)
            weight = aggregation.uniform(who)
            total += jnp.tensordot(weight, logits, 1, precision="highest")
        return total / jnp.maximum(count, 1)

    every = jnp.arange(len(public.examples.y))
    return compute_outputs(mean_logits, public, every, batch_size)
