"""Every method with every kind of model, by shapes: nothing is trained."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import algorithms, models, registry
from pfljax.conformance import toy
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, ClientData, Examples, Local
from pfljax.evaluation import views

CLASSES, ROWS, CLIENTS, COHORT = 10, 12, 5, 2
MODELS = {  # with the shape of a row
    "twonn": (28, 28),
    "twocnn": (28, 28, 3),
    "resnet9:norm=batch": (28, 28, 3),
    "mobilenet": (32, 32, 3),
    "vgg9": (28, 28, 1),
    "char_lstm": (8,),
}
OPTIONS = {"superfed": {"mixing": "layer", "start": 0.0}}
FORMS = [
    *((method, OPTIONS.get(method, {})) for method in algorithms.methods()),
    ("lg_fedavg", {"mean_body": True}),
]
QUICK = ("twonn", "char_lstm")  # to trace
CASES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in MODELS
]
SENDS = {"fedper": ["body"], "fedrep": ["body"], "lg_fedavg": ["head"], "local": []}


@cache
def task_of(name):
    choice = registry.parse(name)
    module = models.model(choice.name, CLASSES, **choice.kwargs)
    return models.task(module, MODELS[name])


def sizes(params):
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("method", "options"), FORMS, ids=str)
def test_a_round_keeps_all_shapes_and_makes_logits(method, options, name):
    factory, task = algorithms.methods()[method], task_of(name)
    local = Local(0.1, batch_size=4, epochs=1, optimizer=sgd(0.9, 1e-4))
    given = registry.given(factory, rounds=4)
    algorithm = factory(task, local, **given, **options)
    pool = Examples(jnp.zeros((ROWS, *MODELS[name])), jnp.zeros(ROWS, jnp.int32))

    def play(key, zero):
        params, data = task.init(key), ClientData(pool, zero, zero + ROWS)
        server = algorithm.init(params, CLIENTS, key)
        client = algorithm.init_client(params, zero, key)
        turn = toy.turn(key, zero + 1, zero + 3, zero, CLIENTS)
        message = algorithm.message(turn, server, client)
        after, upload, _ = algorithm.train(turn, message, client, data)
        uploads = jax.tree.map(lambda leaf: jnp.stack([leaf] * COHORT), upload)
        cohort = toy.cohort(jnp.ones(COHORT), CLIENTS)
        end = algorithm.aggregate(server, uploads, cohort)
        model = views.personal_model(algorithm, turn, end, after, data, jnp.bool_(True))
        logits = algorithm.predict(model, Batch.of_rows(pool.x))
        return params, (server, client), (end, after), (message, upload), logits

    key, zero = jax.random.key(0), jnp.int32(0)
    params, before, after, sent, logits = jax.eval_shape(play, key, zero)
    assert after == before
    assert logits.shape == (ROWS, CLASSES)
    parts = sizes([params[part] for part in SENDS.get(method, ("body", "head"))])
    assert all(sizes(way) >= parts for way in sent)
    sends_more = method not in SENDS or "mean_body" in options
    assert (sizes(sent[1]) == parts) or sends_more
