import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import engine, selection
from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.interpolation.superfed import superfed
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import Batch, ClientData, Local
from pfljax.evaluation import metrics, over_clients, programs, views

TASK, LOCAL = toy.classifier(), Local(0.3, batch_size=4)
CLIENTS = len(toy.SIZES)
IDS = jnp.arange(CLIENTS)
TRAIN, TEST = toy.ragged(held_out=5)


def made(factory, **options):
    """(setting, state) of a method whose local models, if any, differ."""
    method = factory(TASK, LOCAL, **options)
    setting = engine.Setting(method, LOCAL, selection.uniform(4, CLIENTS))
    return setting, engine.init(setting, TASK, CLIENTS, jax.random.key(2))


def evaluated(setting, state, model, test=TEST, width=None):
    if model == "server":
        return programs.evaluate_server(setting, TASK)(state.server, test)
    evaluate = programs.evaluate_clients(setting, model, width)
    return evaluate(state, state.clients, IDS, TRAIN, test)


def in_two(setting, state, model, test=TEST, width=None):
    """By two programs: the models of the clients, and their metrics."""
    evaluate = programs.evaluate_in_two(setting, TASK, model, width)
    return evaluate(state, state.clients, IDS, TRAIN, test)


def expected(models, test=TEST):
    """Accuracy and loss of one model a client on that client's examples, in NumPy."""
    predict = jax.jit(jax.vmap(TASK.predict, (0, None)))
    logits, y = (
        np.asarray(predict(models, Batch.full(test.examples.x))),
        np.asarray(test.examples.y),
    )
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    found = {"accuracy": [], "loss": []}
    for k, (at, size) in enumerate(zip(test.offset, test.size, strict=True)):
        own, labels = log_p[k, at : at + size], y[at : at + size]
        found["accuracy"].append((own.argmax(1) == labels).mean())
        found["loss"].append(-own[np.arange(size), labels].mean())
    return found


def assert_metrics(found, models, test=TEST):
    """Those of `expected`, and all there."""
    assert set(found) == set(metrics.METRICS)
    for name, values in expected(models, test).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)


def for_all(params):
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (CLIENTS, *a.shape)), params)


@pytest.fixture(scope="module")
def mixture():
    setting, state = made(superfed, start=0.0)
    mixed = state.clients._replace(mixed=jnp.ones(CLIENTS, bool))
    return setting, state._replace(round=jnp.int32(1), clients=mixed)


@pytest.mark.parametrize(
    ("model", "width"),
    [
        ("personal", 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("personal", None), ("trained", 1), ("mixture", 1))
        ),
    ],
)
def test_one_program_or_two_give_the_same(mixture, model, width):
    one = evaluated(*mixture, model, width=width)
    two = in_two(*mixture, model, width=width)
    toy.assert_close(one, two, 1e-6)


def test_the_server_view_evaluates_the_one_model_of_all(mixture):
    found = evaluated(*mixture, "server")
    assert_metrics(found, for_all(mixture[1].server))


def test_the_personal_view_evaluates_each_clients_own(mixture):
    setting, state = mixture
    models = tree.lerp(for_all(state.server), state.clients.v, 0.5)
    found = evaluated(setting, state, "personal")
    assert_metrics(found, models)
    toy.assert_close(found, evaluated(setting, state, "personal", width=3))


def test_a_client_without_test_examples_has_no_metrics(mixture):
    fewer = TEST._replace(size=TEST.size.at[3].set(0))
    found = evaluated(*mixture, "server", test=fewer)
    others = np.delete(np.arange(CLIENTS), 3)
    whole = expected(for_all(mixture[1].server))
    assert all(np.isnan(values[3]) for values in found.values())
    assert all(np.isfinite(values[others]).all() for values in found.values())
    for name, values in whole.items():
        np.testing.assert_allclose(found[name][others], np.take(values, others), 1e-5)


def test_the_path_begins_at_the_server_and_ends_at_the_clients_model(mixture):
    setting, state = mixture
    path = evaluated(setting, state, "mixture")
    points = {0: for_all(state.server), 10: state.clients.v}
    points[3] = tree.lerp(points[0], points[10], 0.3)
    for place, models in points.items():
        assert_metrics({name: path[name][:, place] for name in metrics.METRICS}, models)
    middle = {name: path[name][:, 5] for name in metrics.METRICS}
    toy.assert_close(middle, evaluated(setting, state, "personal"))


def test_the_ensemble_of_a_path_has_the_mean_of_its_probabilities(mixture):
    setting, state = mixture
    path = evaluated(setting, state, "mixture", width=2)
    y = np.asarray(TEST.examples.y)
    predict = jax.jit(jax.vmap(TASK.predict, (0, None)))
    p = []
    for t in over_clients.GRID:
        models = tree.lerp(for_all(state.server), state.clients.v, t)
        logits = predict(models, Batch.full(TEST.examples.x))
        p.append(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True))
    mean = np.mean(p, axis=0)
    for k, (at, size) in enumerate(zip(TEST.offset, TEST.size, strict=True)):
        own, labels = mean[k, at : at + size], y[at : at + size]
        found = {name: path[f"ensemble/{name}"][k] for name in metrics.METRICS}
        right = own[np.arange(size), labels]
        assert found["accuracy"] == pytest.approx((own.argmax(1) == labels).mean())
        assert found["loss"] == pytest.approx(-np.log(right).mean(), rel=1e-5)
        entropy = -(own * np.log(own)).sum(1).mean()
        assert found["entropy"] == pytest.approx(entropy, rel=1e-5)


def turn_for(data):
    return toy.turn(jax.random.key(9), 0, 6)


@pytest.mark.parametrize(
    "factory", [fedper, pytest.param(scaffold, marks=pytest.mark.slow)]
)
def test_the_trained_model_is_what_the_client_uploads(factory):
    setting, state = made(factory)
    method, data = setting.algorithm, toy.one(TRAIN, 1)
    client = tree.take(state.clients, 1)
    turn = turn_for(data)
    found = views.trained_model(method, turn, state.server, client, data)
    message = method.message(turn, state.server, client)
    client, upload, _ = method.train(turn, message, client, data)
    models = {
        fedper: lambda: tree.merge(upload, client),
        scaffold: lambda: tree.add(state.server.x, upload.dy),
    }
    toy.assert_close(found, models[factory](), 1e-6)


def test_the_trained_view_trains_every_client_and_leaves_no_trace():
    setting, state = made(fedavg)
    before = toy.copy(state)
    found = evaluated(setting, state, "trained")
    toy.assert_same(state, before)
    turns = jax.vmap(
        lambda k, size: toy.turn(
            engine.client_key(
                jax.random.fold_in(derive(state.key, "evaluation"), 0), k
            ),
            0,
            budget(LOCAL, size),
        )
    )(IDS, TRAIN.size)

    def upload(turn, offset, size):
        data = ClientData(TRAIN.examples, offset, size)
        return setting.algorithm.train(turn, state.server, (), data)[1]

    models = jax.vmap(upload)(turns, TRAIN.offset, TRAIN.size)
    assert_metrics(found, models)


def test_finetuning_is_evaluated_in_the_personal_view_alone():
    setting, state = made(fedavg, finetune=20)
    plain, _ = made(fedavg)
    server = evaluated(setting, state, "server")
    toy.assert_close(server, evaluated(plain, state, "personal"))
    tuned = evaluated(setting, state, "personal", test=TRAIN)
    before = evaluated(setting, state, "server", test=TRAIN)
    assert (tuned["loss"] < before["loss"]).all()


def test_a_server_without_a_model_is_refused():
    setting, _ = made(fedper)
    with pytest.raises(ValueError, match="no server model; evaluate 'personal'"):
        programs.evaluate_server(setting, TASK)
