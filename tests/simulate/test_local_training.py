"""Settings of local training that hold for every method."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tiny
from pfljax import Experiment, run
from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Batch
from pfljax.engine.state import first_params, make_params
from pfljax.simulate import begin, training
from pfljax.simulate.components import make_task
from pfljax.simulate.export import load_state, load_task, personal_model, server_model
from pfljax.simulate.federation import build_federation
from pfljax.simulate.personal import personal_models
from pfljax.simulate.shape import make_shape
from pfljax.simulate.simulation import simulation

SMALL = tiny.TINY.replace(algorithm="fedavg", rounds=2, cohort=6)
FROZEN = SMALL.replace(freeze="body/layers_1/*")


@pytest.mark.parametrize(
    "method",
    ["ditto", *(pytest.param(m, marks=pytest.mark.slow) for m in ("fedavg", "fedper"))],
)
def test_frozen_leaves_keep_their_first_bits(method, tmp_path):
    job = SMALL.replace(
        algorithm=method,
        model="mlp:hidden=(8,8)",
        weight_decay=0.1,
        freeze="body/layers_1/*,head/kernel",
        out=str(tmp_path / "run"),
    )
    run(job, quiet=True, report=False)
    shape = make_shape(job, build_federation(job)[0])
    begun = tree.paths(first_params(make_task(job, shape), jax.random.key(job.seed)))
    frozen = {"body/layers_1/bias", "body/layers_1/kernel", "head/kernel"}
    every = tree.paths(tree.first(personal_models(job.out)))
    exported = tree.paths(personal_model(job.out, 0))
    for model in (exported, every):
        same = {name for name in begun if np.array_equal(model[name], begun[name])}
        assert same == frozen
        assert model.keys() == begun.keys()
    assert load_task(job.out).predict(exported, Batch.full(np.ones((2, 8, 8, 1)))).any()


@pytest.mark.parametrize("method", ["ditto", "scaffold"])
def test_frozen_leaves_are_in_no_state_and_no_message(method):
    job = SMALL.replace(algorithm=method, model="mlp:hidden=(8,8)", momentum=0.9)
    sizes = []
    for freeze in ("", "body/layers_1/*"):
        frozen = job.replace(freeze=freeze)
        sim = simulation(frozen, build_federation(frozen)[0])
        momentum = sim.setting.local.optimizer(0.1).init(shapes_of_model(sim.task))
        states = sim.shapes.server, sim.shapes.clients, momentum
        sizes.append(np.array([*sim.traffic(), *map(tree.nbytes, states)]))
    leaves = 4 * (64 * 8 + 8)
    copies = {"ditto": (1, 1, 1, 6, 1), "scaffold": (2, 2, 2, 6, 1)}[method]
    np.testing.assert_array_equal(sizes[0] - sizes[1], leaves * np.array(copies))


def test_seeds_have_frozen_leaves_of_their_own():
    jobs = (FROZEN.replace(model="mlp:hidden=(8,8)", seed=seed) for seed in (0, 1))
    tasks = [simulation(job, build_federation(job)[0]).task for job in jobs]
    params = tasks[0].init(jax.random.key(0))
    kernels = [task.complete(params)["body"]["layers_1"]["kernel"] for task in tasks]
    assert not np.array_equal(*kernels)


@pytest.mark.slow
def test_all_models_are_trained_on_augmented_examples(tmp_path):
    (tmp_path / "own.py").write_text("def blank(x, key):\n    return 0 * x\n")
    augment = f"flip {tmp_path}/own.py:blank"
    out = str(tmp_path / "run")
    job = SMALL.replace(algorithm="ditto", rounds=1, augment=augment, out=out)
    run(job, quiet=True, report=False)
    sim, _, state = load_state(out)
    begun = tree.paths(make_params(sim.setting, sim.task)(state.key))
    for model in (server_model(out), personal_model(out, 0)):
        for name, leaf in tree.paths(model).items():
            # Of blank examples the features are 0, and the last bias alone steps.
            same = np.allclose(leaf, begun[name], atol=1e-6)
            assert same == (name != "head/bias")


@pytest.mark.parametrize(
    "storage", ["device", pytest.param("host", marks=pytest.mark.slow)]
)
def test_a_kept_momentum_goes_on_in_the_next_round(storage, tmp_path):
    # Constant gradients: with batches of all examples and a small rate, momentum 0.5
    # makes steps of 1, 1.5 and 1.75 gradients, and 1 each if it starts afresh.
    job = SMALL.replace(
        algorithm="local", model="logistic", epochs=None, steps=1, batch_size=300,
        lr=1e-3, momentum=0.5, rounds=3, state_storage=storage,
    )  # fmt: skip
    moved = []
    for name, keep, rounds in (("kept", True, 2), ("fresh", False, 3)):
        out = str(tmp_path / name)
        run(
            job.replace(keep_optimizer=keep, rounds=rounds, out=out),
            quiet=True,
            report=False,
        )
        if keep:
            run(job.replace(keep_optimizer=True, out=out), quiet=True, report=False)
        sim, _, state = load_state(out)
        begun = make_params(sim.setting, sim.task)(state.key)
        moved.append(optax.tree.norm(tree.sub(personal_model(out, 0), begun)))
    np.testing.assert_allclose(moved[0] / moved[1], 4.25 / 3, rtol=0.02)


@pytest.mark.parametrize("method", ["ditto", "fedkd"])
def test_methods_of_several_models_keep_no_optimizer(method):
    job = SMALL.replace(algorithm=method, keep_optimizer=True)
    with pytest.raises(ValueError, match="keep_optimizer is set, but") as error:
        begin.check_method(job, None, None)
    assert "\n" not in str(error.value)


def test_a_model_of_frozen_leaves_alone():
    with pytest.raises(ValueError, match="freeze is 'body head', which leaves nothing"):
        begin.check_method(SMALL.replace(freeze="body head"), None, None)


@pytest.mark.parametrize("pattern", ["body/*,bodi/*", "bodi"])
def test_a_pattern_that_matches_no_leaf(pattern):
    with pytest.raises(ValueError, match=r"'bodi.*head/kernel") as error:
        begin.check_method(SMALL.replace(freeze=pattern), None, None)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("optimizer", ["sgd", "adam:b1=0.0,b2=0.0,eps=1.0"])
def test_gradients_are_clipped_before_the_optimizer(optimizer):
    gradient = {"w": jnp.array([3.0, 4.0])}
    steps = []
    for norm, factor in ((1.0, 0.2), (None, 1.0), (9.0, 1.0)):
        job = Experiment(optimizer=optimizer, max_grad_norm=norm)
        made = training.make_optimizer(job)(0.1)
        plain = training.make_optimizer(job.replace(max_grad_norm=None))(0.1)
        scaled = tree.scale(gradient, factor)
        steps.append(made.update(gradient, made.init(gradient), gradient)[0]["w"])
        expected, _ = plain.update(scaled, plain.init(gradient), gradient)
        np.testing.assert_allclose(steps[-1], expected["w"], rtol=1e-6)
    assert not np.allclose(steps[0], steps[1])
