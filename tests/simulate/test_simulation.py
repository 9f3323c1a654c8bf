"""From settings to functions: what is chosen, shared and checked."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tiny
from pfljax import Experiment, algorithms, data, engine, models, run, selection
from pfljax.core import optimizers
from pfljax.core.components import Component
from pfljax.core.types import Batch, ClientData, Examples, Local
from pfljax.simulate import components, simulation, training
from pfljax.simulate.federation import build_federation, describe_split


@pytest.fixture(scope="module")
def federation():
    return build_federation(tiny.TINY)[0]


def test_seeds_share_compiled_functions(federation):
    sim = simulation.simulation(tiny.TINY, federation)
    named = tiny.TINY.replace(seed=5, out="x", label="x", keep_checkpoints=9)
    assert simulation.simulation(named, federation) is sim
    assert simulation.simulation(tiny.TINY.replace(lr=0.1), federation) is not sim
    assert sim.traffic() is sim.traffic()


@pytest.mark.parametrize(
    ("algorithm", "hyper", "same"),
    [
        ("fedavg", {}, True),
        ("fedavg", {"finetune": 1}, False),
        ("ditto", {}, False),
    ],
)
def test_who_is_evaluated_with_the_servers_model(federation, algorithm, hyper, same):
    job = tiny.TINY.replace(algorithm=Component(algorithm, hyper))
    sim = simulation.simulation(job, federation)
    assert set(sim.views) == ({"server"} if same else {"server", "personal"})


@pytest.mark.parametrize(
    ("shape", "model"),
    [
        ((60,), "mlp"),
        ((8, 8), "mlp"),
        ((28, 28, 1), "mlp"),
        ((32, 32, 3), "gn_cnn"),
    ],
)
def test_the_model_goes_by_the_shape(shape, model):
    assert components.resolve_model(Experiment(), shape) == Component(model)


def test_the_learning_rate_decays_from_the_first_round():
    made = training.make_local(Experiment(lr=0.5, lr_decay=0.8))
    by_round = [float(optimizers.learning_rate(made, jnp.int32(r))) for r in range(3)]
    np.testing.assert_allclose(by_round, [0.4, 0.32, 0.256], rtol=1e-6)
    assert training.make_local(Experiment(lr=0.5)).learning_rate == 0.5


def test_work_is_epochs_or_steps():
    assert training.make_local(Experiment(epochs=3)).epochs == 3
    made = training.make_local(Experiment(epochs=None, steps=7))
    assert (made.epochs, made.steps) == (None, 7)
    assert made.batch_size == Experiment().batch_size


def step(optimizer, grads):
    """The updates of a few steps from the parameter 1."""
    state, updates = optimizer.init(jnp.float32(1)), []
    for grad in grads:
        update, state = optimizer.update(jnp.float32(grad), state, jnp.float32(1))
        updates.append(float(update))
    return updates


def test_sgd_has_torchs_momentum_and_weight_decay():
    made = training.make_optimizer(Experiment(momentum=0.5, weight_decay=0.1))(0.1)
    g, h = 1 + 0.1, 2 + 0.1
    expected = [-0.1 * g, -0.1 * (0.5 * g + h)]
    np.testing.assert_allclose(step(made, [1, 2]), expected, rtol=1e-6)


def test_an_optimizer_of_optax_gets_its_options():
    made = training.make_optimizer(Experiment(optimizer="adam:b1=0.5,b2=0.9"))(0.1)
    same = optax.adam(0.1, b1=0.5, b2=0.9)
    np.testing.assert_array_equal(step(made, [1, -2, 3]), step(same, [1, -2, 3]))


def test_stragglers_and_selection_by_size(federation):
    job = tiny.TINY.replace(selection="by_size", stragglers=0.34, drop_stragglers=True)
    sim = simulation.simulation(job, federation)
    ids = sim.setting.selection.choose((), jax.random.key(0))
    assert ids.shape == (3,)
    _, mask = sim.setting.selection.work((), jax.random.key(0), ids, jnp.full(3, 4))
    assert sorted(mask.tolist()) == [0, 1, 1]


def test_held_out_clients_do_not_train():
    training, unseen = build_federation(tiny.TINY.replace(unseen=0.34))
    assert (training.num_clients, unseen.num_clients) == (4, 2)
    everybody = {*training.manifest["clients"], *unseen.manifest["clients"]}
    assert everybody == set(range(6))
    assert build_federation(tiny.TINY)[1] is None


def test_a_run_says_on_what_its_clients_are_evaluated():
    official = [0, 1, 2] * 3
    arrays = data.from_arrays(np.zeros((9, 2)), np.zeros(9, int), official=official)
    for source, words in (("clients", "on 0.4 of"), ("official", "on all official")):
        options = {"test": 0.4, "validation": 0.4, "test_from": source}
        federation = data.federate(arrays, "iid", num_clients=1, seed=0, **options)
        validated, tested = describe_split(federation).split(" and test ")
        assert words in validated
        assert tested.startswith(words)
    owners = [0, 0, 0, 1, 1, 0, 0, 0, 0]  # the second has no test examples
    official = [0, 1, 2, 0, 2, 0, 1, 0, 0]
    arrays = data.from_arrays(
        np.zeros((9, 2)), np.zeros(9, int), client=owners, official=official
    )
    federation = data.federate(arrays, "natural", num_clients=None, seed=0)
    assert describe_split(federation).endswith("official examples (1 of 2 have none)")


def test_clients_of_ones_own_are_held_out_alike(federation):
    training, unseen = build_federation(tiny.TINY.replace(unseen=0.5), federation)
    assert (training.num_clients, unseen.num_clients) == (3, 3)


def test_groups_of_clients_have_figures_and_one_is_held_out(tmp_path):
    domain = np.repeat(["art", "photo", "sketch"], 40)
    arrays = data.from_arrays(
        np.random.default_rng(0).normal(size=(120, 4)),
        np.arange(120) % 2,
        client=np.arange(120) // 20,
        groups={"domain": domain},
    )
    federation = data.federate(arrays, "natural", num_clients=None, seed=0)
    settings = {"unseen": "domain=photo", "rounds": 1, "out": str(tmp_path / "run")}
    experiment = tiny.TINY.replace(algorithm="fedavg", dataset="mine", **settings)
    found = run(experiment, federation, quiet=True, report=False)
    count = {each["clients"]: each["count"] for each in found.last.records}
    assert count["domain=art"] == count["domain=sketch"] == count["unseen"] == 2
    assert "domain=photo" not in count
    assert count["unseen domain=photo"] == 2
    values = found.clients["server/test/accuracy"][-1, :2]
    mean = found.last.of("domain=art").server.test.accuracy
    np.testing.assert_allclose(mean, values.mean(), rtol=1e-6)


def test_the_width_goes_by_the_platform(federation):
    assert simulation.simulation(tiny.TINY, federation).setting.width == 1


@pytest.mark.slow
def test_pixels_may_be_normalised_by_channel():
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    mine = data.from_arrays(x, np.arange(30) % 3, shift=x.mean(0), scale=x.std(0))
    federation = data.federate(mine, "iid", num_clients=3, seed=0)
    job = tiny.TINY.replace(model="logistic", clients=3, cohort=2)
    task = simulation.simulation(job, federation).task
    params = task.init(jax.random.key(0))
    moved = simulation.simulation(
        job, dataclasses.replace(federation, shift=0.0, scale=1.0)
    ).task
    logits = task.predict(params, Batch.full(x))
    np.testing.assert_allclose(
        logits,
        moved.predict(params, Batch.full((x - x.mean(0)) / x.std(0))),
        rtol=1e-4,
        atol=1e-5,
    )


def temporaries(clients):
    """Bytes that compiled rounds need beside their arguments and results."""
    task = models.task(models.model("mlp", 3, hidden=(4,)), (2,))
    local = Local(learning_rate=0.1, batch_size=4)
    method = algorithms.methods()["fedper"](task, local)
    chosen = selection.uniform(5, clients)
    setting = engine.Setting(method, local, chosen, width=1)
    pool = Examples(jnp.zeros((9, 2)), jnp.zeros(9, jnp.int32))
    spans = jnp.zeros(clients, jnp.int32), jnp.full(clients, 9, jnp.int32)
    key = jax.random.key(0)
    state = jax.eval_shape(lambda key: engine.init(setting, task, clients, key), key)
    run = engine.compile_rounds(setting, 3).lower(state, ClientData(pool, *spans), 3)
    return run.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_temporary_memory_of_a_round_does_not_grow_with_the_clients():
    """Client states are written in place: no copy of the store, whatever its size."""
    assert temporaries(50) == temporaries(5000)


def test_natural_clients_with_test_examples_only_are_reported(tmp_path, capsys):
    """Users a, b, c have test examples, b alone has train examples."""
    for part, users in (("train", "b"), ("test", "abc")):
        examples = {
            user: {"x": [[0.0, 1.0]] * 5, "y": [0, 1, 1, 0, 1]} for user in users
        }
        blob = {
            "users": [*users],
            "num_samples": [5] * len(users),
            "user_data": examples,
        }
        (tmp_path / part).mkdir()
        (tmp_path / part / "all.json").write_text(json.dumps(blob))
    job = Experiment(
        dataset=f"leaf:path={tmp_path}", partition="natural", clients=None, cohort=1
    )
    build_federation(job)
    line = capsys.readouterr().err
    assert "2 of 3 natural clients of" in line
    assert (
        "have no training examples and are left out (first number 0); examples='all' "
        in line
    )
