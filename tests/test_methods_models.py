"""Every method with every kind of model, by shapes: nothing is trained."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import declared
from pfljax import algorithms, models
from pfljax.conformance import Case, toy
from pfljax.core import components
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, ClientData, Examples, Local
from pfljax.evaluation import views

CLASSES, ROWS, CLIENTS, COHORT = 10, 12, 5, 2
MODELS = {  # with the shape of an example
    "twonn": (28, 28),
    "twocnn": (28, 28, 3),
    "resnet9:norm=batch": (28, 28, 3),
    "mobilenet": (32, 32, 3),
    "vgg9": (28, 28, 1),
    "char_lstm": (8,),
    "transformer": (8,),
}
BOTH = (toy.WHOLE, toy.WHOLE)
FORMS = {  # of methods, where not the default or not the default alone
    "superfed": [Case("superfed", {"mixing": "layer", "start": 0.0}, bytes=BOTH)],
    "lg_fedavg": [
        Case("lg_fedavg", bytes=(toy.HEAD, toy.HEAD)),
        Case("lg_fedavg", {"mean_body": True}, bytes=(toy.HEAD, toy.WHOLE)),
    ],
}
# A generator; layers, one after another; all but normalisation.
SENDS_OTHERS = ("fedgen", "fedma", "fedbn")
REFUSED = {
    "fedma": ("resnet9:norm=batch", "mobilenet", "char_lstm", "transformer"),
    "fedcp": ("resnet9:norm=batch",),  # its head pools pixels
}
PARTS = {0: [], toy.BODY: ["body"], toy.HEAD: ["head"]}  # by the bytes of the toy


# All methods see a model of each kind of shape; one method a family sees the others.
ALL_SEE = ("twonn", "resnet9:norm=batch", "char_lstm")


def rounds():
    """Every form of every method with its models; all but the smallest are slow."""
    families = algorithms.families()
    first = {family: name for name, family in sorted(families.items(), reverse=True)}
    for method, cases in declared.of_all().items():
        for case, name in product(FORMS.get(method, cases[:1]), MODELS):
            stands_for_family = method == first[families[method]]
            seen = name in ALL_SEE or stands_for_family
            if not seen or name in REFUSED.get(method, ()):
                continue
            slow = () if name == "twonn" else pytest.mark.slow
            yield pytest.param(case, name, id=f"{case.label}-{name}", marks=slow)


@cache
def task_of(name):
    choice = components.parse(name)
    module = models.model(choice.name, CLASSES, **choice.options)
    return toy.traced_once(models.task(module, MODELS[name]))


def sizes(params):
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(("case", "name"), [*rounds()])
def test_a_round_keeps_all_shapes_and_makes_logits(case, name):
    factory = algorithms.method(case.name)
    task = task_of(name)
    local = Local(0.1, batch_size=4, epochs=1, optimizer=sgd(0.9, 1e-4))
    given = toy.run_options(factory, rounds=4)
    algorithm = factory(task, local, **given, **case.options)
    pool = Examples(jnp.zeros((ROWS, *MODELS[name])), jnp.zeros(ROWS, jnp.int32))

    def play(key, zero):
        params, data = task.init(key), ClientData(pool, zero, zero + ROWS)
        server = algorithm.init(params, CLIENTS, key)
        client = algorithm.init_client(params, zero, key)
        turn = toy.turn(key, zero + 1, zero + 3, zero, CLIENTS)._replace(public=data)
        message = algorithm.message(turn, server, client)
        after, upload, _ = algorithm.train(turn, message, client, data)
        uploads = jax.tree.map(lambda leaf: jnp.stack([leaf] * COHORT), upload)
        cohort = toy.cohort(jnp.ones(COHORT), CLIENTS)._replace(public=data)
        number = algorithm.architecture
        if number is not None:
            uploads = {number: uploads}
            cohort = cohort._replace(places={number: jnp.arange(COHORT)})
        end = algorithm.aggregate(server, uploads, cohort)
        model = views.personal_model(algorithm, turn, end, after, data, jnp.bool_(True))
        logits = algorithm.predict(model, Batch.full(pool.x))
        return params, (server, client), (end, after), (message, upload), logits

    key, zero = jax.random.key(0), jnp.int32(0)
    params, before, after, sent, logits = jax.eval_shape(play, key, zero)
    assert after == before
    assert logits.shape == (ROWS, CLASSES)
    if case.sends_statistics or case.name in SENDS_OTHERS:  # no parts of the model
        return
    for tree, declared_bytes in zip(sent, case.bytes, strict=True):
        parts = PARTS.get(declared_bytes, ["body", "head"])
        whole = sizes([params[part] for part in parts])
        if declared_bytes in PARTS:
            assert sizes(tree) == whole
        assert sizes(tree) >= whole


@pytest.mark.parametrize("method", REFUSED)
def test_a_method_refuses_models_that_it_does_not_know(method):
    local = Local(0.1, batch_size=4)
    for name in REFUSED[method]:
        with pytest.raises(ValueError, match=f"{method} .* this model: .*; choose"):
            algorithms.method(method)(task_of(name), local)
