import jax
import numpy as np
import pytest
import ranks

from pfljax.algorithms.global_model.hetlora import hetlora
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.types import Local

CONFORMANCE = [Case("hetlora", bytes=(toy.WHOLE, toy.WHOLE))]
LOCAL = Local(0.1, batch_size=4)


def methods():
    tasks = ranks.tasks()
    return tasks, [hetlora(task, LOCAL) for task in tasks]


def test_the_server_has_the_largest_rank_and_clients_its_first_columns():
    tasks, made = methods()
    params = tasks[0].init(jax.random.key(0))
    server = made[0].init(params, 4, jax.random.key(2))
    np.testing.assert_array_equal(server["head"]["bias"], params["head"]["bias"])
    named = tree.paths(ranks.draw(tasks[1]))
    for method, rank in zip(made, ranks.RANKS, strict=True):
        sent = tree.paths(method.message(None, ranks.draw(tasks[1]), ()))
        for path in ranks.PATHS:
            a, b = f"lora_a/{path}", f"lora_b/{path}"
            np.testing.assert_array_equal(sent[a], named[a][:, :rank])
            np.testing.assert_array_equal(sent[b], named[b][:rank])
    assert tree.paths(server)["lora_a/head/kernel"].shape == (6, 3)


def test_uploads_are_padded_and_weighted_by_their_products():
    tasks, made = methods()
    sent = ranks.uploads(tasks)
    server = made[0].aggregate(
        ranks.draw(tasks[1]), sent, ranks.cohort(mask=(1, 1, 0, 1))
    )
    clients = ranks.by_client(sent)
    weights = {
        k: np.sqrt(sum((ranks.product(clients[k], p) ** 2).sum() for p in ranks.PATHS))
        for k in (0, 1, 3)
    }
    for path, leaf in tree.paths(server).items():
        total = np.zeros(leaf.shape)
        for k, weight in weights.items():
            part = clients[k][path]
            total[tuple(map(slice, part.shape))] += weight * part
        np.testing.assert_allclose(leaf, total / sum(weights.values()), rtol=1e-5)


def test_products_of_zero_count_alike():
    tasks, made = methods()
    sent = {
        number: upload | {"lora_b": tree.zeros(upload["lora_b"])}
        for number, upload in ranks.uploads(tasks).items()
    }
    server = made[0].aggregate(ranks.draw(tasks[1]), sent, ranks.cohort())
    biases = [client["head/bias"] for client in ranks.by_client(sent).values()]
    np.testing.assert_allclose(server["head"]["bias"], np.mean(biases, 0), rtol=1e-5)


def test_models_that_differ_in_more_than_the_rank():
    tasks = ranks.tasks(ranks=(2, 1))
    other = tasks[1]._replace(init=lambda key: {"head": tasks[1].init(key)["head"]})
    with pytest.raises(ValueError, match="model 1 is no slice of model 0"):
        hetlora(tasks[0]._replace(peers=(tasks[0], other)), LOCAL)
