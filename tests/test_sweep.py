"""A sweep: equal to separate runs, whatever the slices, lanes and devices."""

import json
import subprocess
import sys
from functools import cache

import jax
import numpy as np
import pytest

from pfljax import Experiment, build, memory, runs
from pfljax.sweep import sweep
from tiny import environment

FEDAVG = Experiment(
    model="logistic",
    clients=6,
    cohort=3,
    rounds=3,
    epochs=1,
    batch_size=20,
    eval_every=2,
    devices=1,
)
DITTO = FEDAVG.replace(algorithm="ditto")
SUPERFED = FEDAVG.replace(algorithm="superfed")
DEVICES = """
import jax, json, sys
jax.config.update("jax_num_cpu_devices", 3)
from pfljax import Experiment
from pfljax.sweep import sweep
fields, options = json.loads(sys.argv[1])
found = sweep(Experiment(**fields), **options)
found.write(sys.argv[2])
"""


def single(found, index):
    """The experiment of one run of a sweep."""
    run = dict(found.runs[index])
    hyper = dict(found.experiment.hyper) | run.pop("hyper")
    return found.experiment.replace(**run, hyper=hyper)


def separate(experiment):
    """(training loss, metrics by name, [T, C]) of a run by the engine alone."""
    federation, _ = build.federation(experiment)
    sim = build.simulation(experiment, federation)
    train, test, ids = federation.train, federation.test, np.arange(6)
    state, losses, judged = sim.init(jax.random.key(experiment.seed)), [], []
    for count in np.diff([0, *runs.evaluations(experiment)]):
        state, history = sim.rounds(state, train, count)
        losses += list(history["loss"][:count])
        judged.append({"server": sim.judges["server"](state.server, test)})
        judged[-1]["personal"] = judged[-1]["server"]
        if not sim.personal_is_server:
            personal = sim.judges["personal"](state, state.clients, ids, train, test)
            judged[-1]["personal"] = personal
    return losses, {
        f"{model}/{name}": np.stack([values[model][name] for values in judged])
        for model in ("server", "personal")
        for name in ("accuracy", "loss")
    }


def assert_as_separate(found, indices=None):
    """These runs of the sweep, or all, are what separate ones give."""
    for index in indices or range(len(found.runs)):
        losses, metrics = separate(single(found, index))
        np.testing.assert_allclose(found.train_loss[index], losses, rtol=1e-5)
        assert set(metrics) == set(found.metrics)
        for name, values in metrics.items():
            mine = found.metrics[name][index]
            np.testing.assert_allclose(mine, values, rtol=1e-5, atol=1e-5)


def assert_same(a, b):
    """Two sweeps gave the same, up to the order of sums."""
    np.testing.assert_allclose(a.train_loss, b.train_loss, rtol=1e-5)
    for name, values in a.metrics.items():
        np.testing.assert_allclose(values, b.metrics[name], rtol=1e-5, atol=1e-5)


@cache
def cohorts():
    """A sweep over cohort sizes and seeds."""
    return sweep(FEDAVG, cohort=(1, 2, 3), seeds=(0, 1))


def test_learning_rates_and_seeds():
    found = sweep(FEDAVG, lr=(0.05, 0.1), seeds=(0, 3))
    assert [(r["lr"], r["seed"]) for r in found.runs[:3]] == [
        (0.05, 0), (0.05, 3), (0.1, 0),
    ]  # fmt: skip
    assert found.train_loss.shape == (4, 3)
    assert found.metrics["personal/accuracy"].shape == (4, 2, 6)
    assert len({row.tobytes() for row in found.train_loss}) == 4
    assert_as_separate(found)


def test_options_of_the_method_and_seeds():
    found = sweep(DITTO, hyper={"lam": (0.0, 0.5)}, seeds=(0, 1))
    losses = found.metrics["personal/loss"]
    assert not np.allclose(losses[0], losses[2])
    assert_as_separate(found, (0, 3))


def test_numbers_of_the_optimizer():
    numbers = {"lr_decay": [1.0, 0.5], "momentum": [0.0, 0.9]}
    found = sweep(FEDAVG, **numbers, weight_decay=[0.0, 0.01])
    assert len({row.tobytes() for row in found.train_loss}) == 8
    assert_as_separate(found, (0, 7))  # all off, all on


def test_cohort_sizes():
    assert len({row.tobytes() for row in cohorts().train_loss}) == 6
    assert_as_separate(cohorts(), (3, 4))  # a cohort of 2, seed 1; of 3, seed 0


@pytest.mark.parametrize("options", [{"at_once": 1}, {"at_once": 2}, {"lanes": 6}])
def test_slices_and_lanes_change_nothing(options):
    found = sweep(FEDAVG, cohort=(1, 2, 3), seeds=(0, 1), **options)
    assert found.at_once == options.get("at_once", 6)
    assert_same(found, cohorts())


def test_several_devices_change_nothing(tmp_path):
    fields = {k: v for k, v in vars(FEDAVG).items() if k not in ("hyper", "devices")}
    told = json.dumps(
        [fields | {"devices": 3}, {"cohort": [1, 2, 3], "seeds": [0, 1], "at_once": 3}]
    )
    command = [sys.executable, "-c", DEVICES, told, str(tmp_path)]
    subprocess.run(command, env=environment(tmp_path / "cache"), check=True)
    written = json.loads((tmp_path / "sweep.json").read_text())
    assert written["runs"] == cohorts().runs
    assert written["at_once"] == 3
    with np.load(tmp_path / "sweep.npz") as arrays:
        losses = arrays["train_loss"]
        np.testing.assert_allclose(losses, cohorts().train_loss, rtol=1e-5)
        for name, values in cohorts().metrics.items():
            np.testing.assert_allclose(arrays[name], values, rtol=1e-5, atol=1e-5)
        assert arrays["round"].tolist() == [2, 3]


def test_other_values_compile_nothing(monkeypatch):
    traced, one_run = [], runs.one_run
    monkeypatch.setattr(runs, "one_run", lambda *a: traced.append(1) or one_run(*a))
    experiment = FEDAVG.replace(rounds=1, algorithm="fedprox")
    sweep(experiment, lr=(0.05, 0.1), hyper={"mu": [0.0]}, cohort=(1, 3))
    first = len(traced)
    assert first > 0
    other = experiment.replace(seed=5, lr=0.2, out="elsewhere")
    sweep(other, lr=(0.2, 0.3), hyper={"mu": [0.7]}, cohort=(2, 3))
    assert len(traced) == first


def test_a_federation_given_is_held_once():
    federation, _ = build.federation(FEDAVG)
    data = runs.stack([federation, federation.take(np.arange(6)[::-1])])
    assert data.pool.x.shape == federation.train.examples.x.shape
    assert data.train[0].shape == (2, 6)
    two = runs.stack([federation, build.federation(FEDAVG.replace(seed=1))[0]])
    assert len(two.pool.y) == 2 * len(data.pool.y)
    found = sweep(FEDAVG, federation=federation, seeds=(0, 1))
    one = sweep(FEDAVG, federation=lambda seed: federation, seeds=(0, 1))
    assert_same(found, one)


def test_rows_tested_by_all_are_judged_once():
    federation, _ = build.federation(FEDAVG)
    same = federation.test._replace(
        offset=federation.test.offset.at[1:4].set(federation.test.offset[0]),
        size=federation.test.size.at[1:4].set(federation.test.size[0]),
    )
    spans, place = runs._different(same.offset[None], same.size[None])
    assert spans[0].shape == (1, 3)
    np.testing.assert_array_equal(spans[0][0, place[0]], same.offset)
    np.testing.assert_array_equal(spans[1][0, place[0]], same.size)


def plan_for(monkeypatch, free, R=10):
    """Runs of one call where a program of n runs needs 5 + 10 n bytes."""
    monkeypatch.setattr(runs, "_compiled", lambda plan: plan)
    monkeypatch.setattr(runs, "needed_bytes", lambda plan: 5 + 10 * plan.each)
    monkeypatch.setattr(runs, "free_bytes", lambda devices: free)
    plan = runs.Plan(FEDAVG, None, 1, 1, 1, (), None)  # pyright: ignore
    return runs._fitting(plan, R, R, None, None)[1].each


@pytest.mark.parametrize(
    ("free", "each"), [(105, 10), (104, 5), (54, 4), (44, 3), (30, 2), (15, 1)]
)
def test_slices_are_as_large_as_memory_allows(monkeypatch, free, each):
    assert plan_for(monkeypatch, free) == each


def test_one_run_that_does_not_fit_is_told(monkeypatch):
    with pytest.raises(MemoryError, match=r"one run needs .* GiB free; choose"):
        plan_for(monkeypatch, 14)


def test_memory_is_told():
    program = jax.jit(lambda x: x + 1).lower(np.zeros(1000, np.float32)).compile()
    assert memory.needed_bytes(program) >= 8000
    assert memory.free_bytes(1) > 2**20


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"epochs": [1, 2]}, "epochs of superfed cannot be swept .* lr_decay"),
        ({"model": ["logistic"]}, "model of superfed cannot be swept"),
        ({"hyper": {"prox": ["norm"]}}, "hyper prox of superfed .* of hyper: mu, nu"),
        ({"hyper": {"nothing": [1.0]}}, "hyper nothing of superfed cannot"),
        ({"hyper": {"start": [0.1]}}, "hyper start .* of hyper: mu, nu. Make"),
        ({"hyper": {"mu": [-1.0]}}, "mu is -1.0; expected a finite number"),
        ({"lr": [0.1, -1.0]}, "lr is -1.0; expected a positive number"),
        ({"lr": 0.1}, "lr is 0.1; expected a list"),
        ({"lr": [0.1, 0.1]}, "give every value once"),
        ({"cohort": [3, 7]}, "cohort is 7, but there are 6 clients"),
        ({"seeds": [-1]}, "seed is -1"),
        ({"seeds": ()}, "seed is .*; expected a list"),
        ({"at_once": 0}, "at_once is 0; expected at least 1"),
    ],
)
def test_what_cannot_be_swept_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        sweep(SUPERFED, **options)


def test_cohorts_that_cannot_be_cut_are_refused():
    with pytest.raises(ValueError, match="drawn uniformly and has no stragglers"):
        sweep(FEDAVG.replace(selection="by_size"), cohort=(2, 3))


def test_seeds_of_other_shapes_are_refused():
    federation, _ = build.federation(FEDAVG)
    told = "clients of seeds 0 and 1 differ in num_clients; sweep one seed"
    with pytest.raises(ValueError, match=told):
        sweep(
            FEDAVG,
            federation=lambda seed: federation.take(np.arange(5 + seed)),
            seeds=(0, 1),
        )


def test_table():
    lines = cohorts().table().splitlines()
    assert lines[0].startswith("| cohort | seeds | personal/accuracy |")
    last = cohorts().metrics["personal/accuracy"][:2, -1].mean(1)
    cell = f"{last.mean():.4f} ± {last.std(ddof=1):.4f}"
    assert lines[2].startswith(f"| 1 | 2 | {cell} |")
    assert len(lines) == 5
