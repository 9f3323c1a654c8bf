"""A sweep: equal to separate runs, whatever the slices, lanes and devices."""

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from pfljax import Experiment
from pfljax.evaluation import metrics
from pfljax.report import sweeps, write_sweep_report
from pfljax.report.tables import values_by_seed
from pfljax.runs import config
from pfljax.runs.folder import FolderError
from pfljax.runtime import memory
from pfljax.simulate import simulation
from pfljax.simulate.federation import build_federation
from pfljax.sweep import groups, one_run, points, pool, results, run_files, sweep
from pfljax.sweep import program as runs
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
from pfljax.sweep import program, sweep
real = program.run_all
program.run_all = lambda **given: print(given["num_devices"]) or real(**given)
fields, over, options = json.loads(sys.argv[1])
sweep(Experiment(**fields), over, out=sys.argv[2], **options)
"""


def separate(experiment):
    """(training loss, test path, metrics by name) of a run by the engine alone."""
    federation, _ = build_federation(experiment)
    sim = simulation.simulation(experiment, federation)
    evaluate = sim.architectures[0].evaluate
    train, test, ids = federation.train, federation.test, np.arange(6)
    state, losses, evaluated = sim.init(jax.random.key(experiment.seed)), [], []
    for count in np.diff([0, *one_run.evaluations(experiment)]):
        state, history = sim.rounds(state, train, count)
        losses += list(history["loss"][:count])
        evaluated.append({})
        for split in ("test", "validation"):
            theirs = getattr(federation, split)
            found = evaluate["server"](state.server, theirs)
            evaluated[-1][f"server/{split}"] = evaluated[-1][f"personal/{split}"] = (
                found
            )
            if "personal" in evaluate:
                people = state.clients, ids, train, theirs
                evaluated[-1][f"personal/{split}"] = evaluate["personal"](
                    state, *people
                )
    path = {}
    if "mixture" in evaluate:
        path = evaluate["mixture"](state, state.clients, ids, train, test)
    return (
        losses,
        path,
        {
            f"{model}/{name}": np.stack([values[model][name] for values in evaluated])
            for model in evaluated[0]
            for name in metrics.METRICS
        },
    )


def close(a, b):
    """Arrays by name that are equal to 1e-5."""
    assert set(a) == set(b)
    for name, values in a.items():
        np.testing.assert_allclose(values, b[name], rtol=1e-5, atol=1e-5, err_msg=name)


def assert_as_separate(found, indices=None):
    """These runs of the sweep, or all, are what separate ones give."""
    for index in indices or range(len(found.results)):
        mine = found.results[index]
        own = points.set_values(found.experiment, mine.values)
        losses, path, evaluated = separate(own)
        np.testing.assert_allclose(mine.train_loss, losses, rtol=1e-5)
        close(mine.metrics, evaluated)
        close(
            {k: v for k, v in mine.path.items() if k.startswith("test")},
            {f"test/{name}": values for name, values in path.items()},
        )


def assert_same(a, b):
    """Two sweeps gave the same, up to the order of sums."""
    assert [r.values for r in a.results] == [r.values for r in b.results]
    for one, other in zip(a.results, b.results, strict=True):
        np.testing.assert_allclose(one.train_loss, other.train_loss, rtol=1e-5)
        close(one.metrics, other.metrics)


def different(found):
    """How many different training curves there are."""
    return len({result.train_loss.tobytes() for result in found.results})


@cache
def cohorts():
    """A sweep over cohort sizes and seeds."""
    return sweep(FEDAVG, {"cohort": (1, 2, 3), "seed": (0, 1)})


@pytest.mark.slow
def test_learning_rates_and_seeds():
    found = sweep(FEDAVG, {"lr": (0.05, 0.1), "seed": (0, 3)})
    values = [tuple(result.values.values()) for result in found.results]
    assert values == [(0.05, 0), (0.05, 3), (0.1, 0), (0.1, 3)]
    assert found.stacked("personal/test/accuracy").shape == (4, 2, 6)
    assert different(found) == 4
    assert_as_separate(found, (1, 2))


@pytest.mark.slow
def test_options_of_the_method_and_seeds():
    stepped = DITTO.replace(server_optimizer="fedavgm")
    found = sweep(stepped, {"lam": (0.0, 0.5), "seed": (0, 1)})
    losses = found.stacked("personal/test/loss")
    assert not np.allclose(losses[0], losses[2])
    assert_as_separate(found, (3,))


@pytest.mark.slow
def test_numbers_of_the_optimizer():
    numbers = {"lr_decay": [1.0, 0.5], "momentum": [0.0, 0.9]}
    scheduled = FEDAVG.replace(schedule="cosine:decay_steps=3")
    found = sweep(scheduled, numbers | {"weight_decay": [0.0, 0.01]})
    assert different(found) == 8
    assert_as_separate(found, (7,))  # all on


def test_cohort_sizes():
    assert different(cohorts()) == 6
    assert_as_separate(cohorts(), (3,))  # a cohort of 2, seed 1


@pytest.mark.parametrize(
    "options",
    [{"at_once": 4, "lanes": 2}, pytest.param({"lanes": 6}, marks=pytest.mark.slow)],
)
def test_slices_and_lanes_change_nothing(options):
    found = sweep(FEDAVG, {"cohort": (1, 2, 3), "seed": (0, 1)}, **options)
    assert_same(found, cohorts())


@pytest.mark.slow
def test_several_devices_change_nothing(tmp_path):
    fields = {k: v for k, v in config.to_json(FEDAVG).items() if k != "devices"}
    arguments = json.dumps(
        [fields | {"devices": 3}, {"cohort": [1, 2, 3], "seed": [0, 1]}, {"at_once": 3}]
    )
    command = [sys.executable, "-c", DEVICES, arguments, str(tmp_path / "out")]
    env = environment(tmp_path / "cache")
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    assert done.stdout == "3\n"
    over = {"cohort": (1, 2, 3), "seed": (0, 1)}
    made = points.make(FEDAVG, over)  # the number of devices is none of their settings
    files = [tmp_path / "out" / "runs" / f"{point.digest}.npz" for point in made]
    found = [run_files.read(f, p.values) for f, p in zip(files, made, strict=True)]
    assert_same(results.Sweep(FEDAVG, over, found), cohorts())
    assert [result.round.tolist() for result in found] == [[2, 3]] * 6


def test_other_values_compile_nothing(monkeypatch):
    traced, trace = [], runs.one_run
    monkeypatch.setattr(runs, "one_run", lambda *a: traced.append(1) or trace(*a))
    experiment = FEDAVG.replace(rounds=1, algorithm="fedprox")
    sweep(experiment, {"lr": (0.05, 0.1), "mu": [0.0], "cohort": (1, 3)})
    first = len(traced)
    assert first > 0
    other = experiment.replace(seed=5, lr=0.2, out="elsewhere")
    sweep(other, {"lr": (0.2, 0.3, 0.4), "mu": [0.7], "cohort": (2, 3)})
    assert len(traced) == first


def test_a_federation_given_is_held_once():
    federation, _ = build_federation(FEDAVG)
    data = pool.stack([federation, federation.take(np.arange(6)[::-1])])
    assert data.pool.x.shape == federation.train.examples.x.shape
    assert data.train[0].shape == (2, 6)
    two = pool.stack([federation, build_federation(FEDAVG.replace(seed=1))[0]])
    assert len(two.pool.y) == 2 * len(data.pool.y)
    found = sweep(FEDAVG, {"seed": (0, 1)}, federation=federation)
    one = sweep(FEDAVG, {"seed": (0, 1)}, federation=lambda seed: federation)
    assert_same(found, one)


def test_examples_tested_by_all_are_evaluated_once():
    federation, _ = build_federation(FEDAVG)
    rest = range(4, federation.num_clients)
    same = federation.test._replace(
        offset=federation.test.offset[[0, 0, 0, 0, *rest]],
        size=federation.test.size[[0, 0, 0, 0, *rest]],
    )
    spans, place = pool._unique(same.offset[None], same.size[None])
    assert spans[0].shape == (1, 3)
    np.testing.assert_array_equal(spans[0][0, place[0]], same.offset)
    np.testing.assert_array_equal(spans[1][0, place[0]], same.size)


def plan_for(monkeypatch, free, R=10):
    """Runs of one call where a program of n runs needs 5 + 10 n bytes."""
    monkeypatch.setattr(runs, "_compile_plan", lambda plan: plan)
    monkeypatch.setattr(runs, "needed_bytes", lambda plan: 5 + 10 * plan.per_call)
    monkeypatch.setattr(runs.components, "make_task", lambda *_: None)
    monkeypatch.setattr(runs.size, "check_model", lambda *_: None)
    monkeypatch.setattr(runs, "free_bytes", lambda devices: free)
    plan = runs.Plan(
        experiment=FEDAVG, method=None, shape=None,  # pyright: ignore
        devices=1, per_call=1, lanes=1, leaves=(), treedef=None,
    )  # fmt: skip
    return runs._fitting(plan, R, R, None, None).plan.per_call


@pytest.mark.parametrize(
    ("free", "each"), [(105, 10), (104, 5), (54, 4), (44, 3), (30, 2), (15, 1)]
)
def test_slices_are_as_large_as_memory_allows(monkeypatch, free, each):
    assert plan_for(monkeypatch, free) == each


def test_one_run_that_does_not_fit_is_refused(monkeypatch):
    with pytest.raises(MemoryError, match=r"one run needs .* GiB free; choose"):
        plan_for(monkeypatch, 14)


def test_memory_is_measured():
    program = jax.jit(lambda x: x + 1).lower(np.zeros(1000, np.float32)).compile()
    assert memory.needed_bytes(program) >= 8000
    assert memory.free_bytes(1) > 2**20


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"nothing": [1.0]}, "unknown name to sweep 'nothing'; known: aggregation"),
        ({"out": ["a"]}, "unknown name to sweep 'out'"),
        ({"start": [0.5, 1.5]}, "start is 1.5"),
        ({"mixing": ["channel"]}, "mixing is 'channel'; expected"),
        ({"epochs": [1, 0]}, "epochs is 0; expected a finite number > 0"),
        ({"mu": [-1.0]}, "mu is -1.0; expected a finite number"),
        ({"mixing": ["model", "lyer"]}, "mixing is 'lyer'; expected"),
        ({"mu": [[0.1], 0.2]}, r"mu is \[0.1\]; expected numbers, texts"),
        (
            {"eval_after_training": [True]},
            "eval_after_training is True: a sweep evaluates",
        ),
        (
            {"algorithm": ["l2gd"], "lam": [1.0, 1000.0]},
            r"rate lam \(1 - p\) / p",
        ),
        (
            {"algorithm": ["mapper"], "lowest": [0.2, 0.9]},
            "lowest is 0.9",
        ),
        ({"lr": [0.1, -1.0]}, "lr is -1.0; expected a finite number > 0"),
        ({"lr": 0.1}, "lr is 0.1, of type float; expected a list"),
        ({"lr": [0.1, 0.1]}, "give every value once"),
        ({"cohort": [3, 7]}, "cohort is 7, but there are 6 clients"),
        ({"seed": [-1]}, "seed is -1"),
        ({"seed": ()}, "seed is .*; expected a list"),
        ({"channel": ["clip:norm=0"]}, "channel 'clip': norm is 0; expected"),
        (
            {"channel": [("median",)]},
            r"channel is \('median',\); expected numbers, tex",
        ),
        (
            {"channel": [None, ""]},
            "'channel': None} are the same run; give one of them",
        ),
    ],
)
def test_what_cannot_be_swept_is_refused(over, message, monkeypatch):
    monkeypatch.setattr(runs, "run_all", None)  # before anything runs
    with pytest.raises(ValueError, match=message):
        sweep(SUPERFED, over)


def test_a_channel_is_swept_by_what_stands_behind_its_option():
    texts = [None, "clip:norm=0.1", "clip:norm=0.1 gaussian:std=0.1"]
    swept = points.make(SUPERFED, {"channel": texts})
    names = [[str(choice) for choice in point.experiment.channel] for point in swept]
    assert names == [[], ["clip:norm=0.1"], ["clip:norm=0.1", "gaussian:std=0.1"]]
    assert len(groups.group_points(swept)) == 3


@pytest.mark.parametrize("more", [{"pin_clients": True}, {"state_storage": "disk"}])
def test_clients_of_a_sweep_have_no_place_of_their_own(more):
    with pytest.raises(ValueError, match="a sweep gives whole runs to the devices"):
        sweep(SUPERFED.replace(**more), {"seed": [0]})


def test_a_slice_of_no_run_is_refused():
    with pytest.raises(ValueError, match="at_once is 0; expected at least 1"):
        sweep(SUPERFED, {}, at_once=0)


def grouped(experiment, over, **more):
    """(values of the points by program, what each program traces)."""
    found = groups.group_points(points.make(experiment, over, **more))
    return [[p.values for p in g.points] for g in found], [g.traced for g in found]


def test_what_changes_the_program_makes_another():
    over = {"mixing": ("model", "layer"), "mu": (0.0, 0.1), "start": (0.0, 0.5)}
    members, traced = grouped(SUPERFED, over | {"seed": (0, 1)})
    assert [len(own) for own in members] == [8, 8]
    assert {p["mixing"] for p in members[0]} == {"model"}
    assert traced[0] == groups.Traced((), ("mu", "start"), False)


def test_cohorts_that_cannot_be_cut_are_programs_of_their_own():
    over = {"cohort": (2, 3)}
    assert len(grouped(FEDAVG, over)[0]) == 1
    assert len(grouped(FEDAVG.replace(selection="by_size"), over)[0]) == 2
    assert len(grouped(FEDAVG.replace(stragglers=0.5), over)[0]) == 2


def test_seeds_of_other_shapes_are_programs_of_their_own():
    federation, _ = build_federation(FEDAVG)
    members, _ = grouped(
        FEDAVG,
        {"seed": (0, 1)},
        federation=lambda seed: federation.take(range(5 + seed)),
    )
    assert len(members) == 2


@pytest.mark.slow
def test_programs_of_their_own_equal_separate_runs():
    found = sweep(FEDAVG, {"epochs": (1, 2)})
    assert different(found) == 2
    assert_as_separate(found, (1,))


@pytest.mark.slow
def test_a_sweep_goes_on_and_grows(tmp_path, monkeypatch):
    calls, run_all = [], runs.run_all

    def counted(*, inputs, **options):
        calls.append(len(inputs.seed))
        yield from run_all(inputs=inputs, **options)

    monkeypatch.setattr(runs, "run_all", counted)
    whole = sweep(FEDAVG, {"lr": (0.05, 0.1, 0.2), "seed": (0, 1)}, out=tmp_path)
    files = sorted((tmp_path / "runs").iterdir())
    assert len(files) == 6
    for lost in files[:2]:
        lost.unlink()
    times = [file.stat().st_mtime_ns for file in files[2:]]
    again = sweep(FEDAVG, {"lr": (0.05, 0.1, 0.2), "seed": (0, 1)}, out=tmp_path)
    assert [file.stat().st_mtime_ns for file in files[2:]] == times
    assert_same(whole, again)
    few = sweep(FEDAVG, {"lr": (0.05, 0.3), "seed": (0, 1)}, out=tmp_path)
    assert calls == [6, 2, 2]
    assert len(few.results) == 4
    rows = {(row["lr"], row["seed"]) for row in rows_of(tmp_path)}
    assert len(rows) == 8  # all that the folder has


@pytest.mark.slow
def test_rounds_are_swept_as_any_setting(tmp_path):
    """A run's settings tell how it began; here points differ in how long they go on."""
    whole = sweep(FEDAVG, {"rounds": (2, 3)}, out=tmp_path)
    with pytest.raises(ValueError, match=r"cannot be stacked; take results\[i\]"):
        whole.stacked("personal/test/accuracy")
    ends = [r._replace(round=r.round[-1:]) for r in whole.results]
    ends = [r._replace(metrics={k: v[-1:] for k, v in r.metrics.items()}) for r in ends]
    with pytest.raises(ValueError, match="differ in the rounds"):  # of one shape
        replace(whole, results=ends).stacked("personal/test/accuracy")
    one, two = ends
    fewer = {k: v[:, :-1] for k, v in two.metrics.items()}
    ends = [one, two._replace(round=one.round, metrics=fewer)]
    with pytest.raises(ValueError, match="or in their clients"):
        replace(whole, results=ends).stacked("personal/test/accuracy")
    with pytest.raises(ValueError, match="metric 'accuracy'; all have personal/test/"):
        whole.stacked("accuracy")
    assert [list(result.round) for result in whole.results] == [[2], [2, 3]]
    assert_as_separate(whole)
    again = sweep(FEDAVG, {"rounds": (3, 1)}, out=tmp_path)
    assert [result.round[-1] for result in again.results] == [3, 1]
    assert {(r["rounds"], r["round"]) for r in rows_of(tmp_path)} == {
        ("2", 2), ("3", 2), ("3", 3), ("1", 1),
    }  # fmt: skip
    last = values_by_seed(sweeps.tidy(sweeps.read(tmp_path)))
    methods = set(last.index.get_level_values("method"))
    assert methods == {"rounds=1", "rounds=2", "rounds=3"}


def test_a_damaged_run_is_refused_with_what_to_do(tmp_path):
    sweep(FEDAVG, {"lr": (0.1,)}, out=tmp_path)
    (file,) = (tmp_path / "runs").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(FolderError, match=r"damaged.*remove it, and the sweep runs it"):
        sweep(FEDAVG, {"lr": (0.1,)}, out=tmp_path)


@pytest.mark.slow
def test_a_model_is_swept_as_any_setting():
    short = FEDAVG.replace(rounds=1)
    found = sweep(short, {"model": ("logistic", "mlp:hidden=(3,)")})
    methods = sweeps.tidy([*found.rows()]).method.unique().tolist()
    assert methods == ["model=logistic", "model=mlp:hidden=(3,)"]
    assert different(found) == 2


def test_other_clients_of_the_same_examples_are_other_runs():
    federation, _ = build_federation(FEDAVG)
    made = [
        points.make(FEDAVG.replace(cohort=2), {}, federation.take(ids))[0].digest
        for ids in ((0, 1, 2), (1, 2, 3), (0, 1, 2))
    ]
    assert made[0] == made[2] != made[1]


def test_another_sweep_is_refused(tmp_path):
    over = {"lr": (0.1,)}
    results.claim(tmp_path, FEDAVG, over)
    for experiment, names, message in (
        (FEDAVG.replace(momentum=0.9), over, "momentum: 0.0 -> 0.9"),
        (FEDAVG, over | {"seed": (0,)}, "swept: lr -> lr, seed"),
    ):
        with pytest.raises(FolderError, match=message):
            results.claim(tmp_path, experiment, names)


@pytest.mark.slow
def test_killed_it_goes_on_at_the_first_unfinished_slice(tmp_path):
    """At the first of its files a sweep is killed; the same call runs the rest."""
    fields = {k: v for k, v in config.to_json(FEDAVG).items() if k != "devices"}
    over = {"lr": [0.05, 0.1, 0.2, 0.3], "seed": [0, 1]}
    arguments = json.dumps([fields | {"rounds": 200}, over, {"at_once": 3}])
    command = [sys.executable, "-c", DEVICES, arguments, str(tmp_path / "out")]
    env = environment(tmp_path / "cache")
    process = subprocess.Popen(command, env=env)
    while process.poll() is None and not list((tmp_path / "out").glob("runs/*.npz")):
        time.sleep(0.005)
    process.kill()
    process.wait()
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "out").glob("runs/*.npz")}
    assert 0 < len(before) < 8
    table = tmp_path / "out" / "sweep.csv"
    assert len(count_runs(table.parent) if table.exists() else {}) <= len(before)
    subprocess.run(command, env=env, check=True)
    files = list((tmp_path / "out").glob("runs/*.npz"))
    assert len(files) == 8
    assert all(file.stat().st_mtime_ns == before.get(file, 0) for file in before)
    assert len(count_runs(table.parent)) == 8


def rows_of(folder):
    """The rows of sweep.csv as dictionaries."""
    return sweeps.read(folder).to_dict("records")


def count_runs(folder):
    """(lr, seed) -> rows in sweep.csv."""
    return Counter((row["lr"], row["seed"]) for row in rows_of(folder))


@pytest.mark.slow
def test_the_table_has_every_finished_run_of_a_sweep_that_was_stopped(
    tmp_path, monkeypatch
):
    """Two more seeds are begun, the second is stopped; the same call ends the sweep."""

    def stop(path, result):
        if result.values == {"lr": 0.1, "seed": 2}:
            raise KeyboardInterrupt
        write(path, result)

    write, over = run_files.write, {"lr": [0.1], "seed": [3, 0]}
    first = sweep(FEDAVG, over, out=tmp_path)
    whole = count_runs(tmp_path)
    assert list(whole) == [("0.1", "3"), ("0.1", "0")]
    monkeypatch.setattr(run_files, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        sweep(FEDAVG, over | {"seed": [1, 2]}, out=tmp_path)
    monkeypatch.undo()
    counts = count_runs(tmp_path)
    assert list(counts) == [("0.1", "3"), ("0.1", "0"), ("0.1", "1")]
    assert set(counts.values()) == set(whole.values())  # whole runs
    page = write_sweep_report(tmp_path, tmp_path)
    assert "1 of 2 runs are finished" in page
    sweep(FEDAVG, over | {"seed": [2, 1]}, out=tmp_path)
    assert [seed for _, seed in count_runs(tmp_path)] == ["3", "0", "1", "2"]
    assert "runs are finished" not in write_sweep_report(tmp_path, tmp_path)
    table = tmp_path / "sweep.csv"
    table.write_bytes(table.read_bytes()[:-3])  # as if the last run were being written
    assert [seed for _, seed in count_runs(tmp_path)] == ["3", "0", "1"]
    sweep(FEDAVG, {"lr": [0.2], "seed": [7]}, out=tmp_path)
    assert len(count_runs(tmp_path)) == 5
    assert "runs are finished" not in write_sweep_report(tmp_path, tmp_path)
    assert first.results[0].values == {"lr": 0.1, "seed": 3}


@pytest.mark.slow
def test_the_tidy_table_holds_every_run_round_model_and_metric(tmp_path):
    over = {"nu": (0.0, 1.0), "seed": (0, 1)}
    found = sweep(SUPERFED, over, out=tmp_path)
    rows = rows_of(tmp_path)
    one = [r for r in rows if (r["nu"], r["seed"]) == ("1.0", "0")]
    models, splits, count = 2 * 2, 2, len(metrics.METRICS)  # two models, two rounds
    # Eleven lambdas and the ensemble, and lambda chosen in two ways.
    assert len(one) == count * (splits * (models + 12) + 2)
    wanted = {"evaluated": "personal", "split": "test", "metric": "loss", "round": 3}
    (row,) = [r for r in one if all(r[k] == v for k, v in wanted.items())]
    assert row["mean"] == pytest.approx(
        found.results[2].metrics["personal/test/loss"][-1].mean()
    )
    best = found.results[2].path["test/accuracy"].max(1).mean()
    (row,) = [r for r in one if (r["lambda"], r["metric"]) == ("oracle", "accuracy")]
    assert row["mean"] == pytest.approx(best)
    assert_as_separate(found, (3,))


def test_table():
    lines = cohorts().table().splitlines()[2:]
    assert lines[0].startswith("| Method | Model | Accuracy (%)")
    last = 100 * cohorts().stacked("personal/test/accuracy")[:2, -1].mean(1)
    cell = f"{last.mean():.2f} ± {last.std(ddof=1):.2f}"
    assert cell in lines[2]
    assert lines[2].startswith("| cohort=1 |")
    assert len(lines) == 2 + 3  # FedAvg's personal models are the server's
    assert all("| personal = server |" in line for line in lines[2:])
