"""Clients of several architectures in the bench: each group alone, and its figures."""

import functools
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pfljax.algorithms.local import local as keeping_all
from pfljax.bench import groups, measure, peak, run, table, workloads
from pfljax.bench.catalogue import WORKLOADS
from pfljax.bench.measure import Sample
from pfljax.engine.setting import Groups
from pfljax.models.groups import FEATURES, GROUPS
from pfljax.simulate import architectures

# Three clients of the first architecture, two of the second.
PAIR = WORKLOADS["W8"]._replace(model="pair", shape=(16, 16, 3), clients=5, cohort=5)
SAMPLES = [Sample(seconds, 10, 10, None) for seconds in (6.0, 9.0, 8.0)]
APART = [[1.0, 4.0], [2.0, 4.0], [1.0, 3.0]]
# In each of five groups are more clients than a cohort, as many as it has slots.
FEW, MANY, COHORT = 50, 4_000, 5


@pytest.fixture
def pair(monkeypatch):
    """W8 as a small workload of two architectures."""
    monkeypatch.setitem(GROUPS, "pair", ("htcnn_yi5", "htcnn_yi2"))
    monkeypatch.setitem(FEATURES, "pair", 8)
    monkeypatch.setitem(WORKLOADS, "W8", PAIR._replace(rows=10))


@pytest.mark.usefixtures("pair")
@pytest.mark.slow
def test_a_group_alone_is_a_federation_of_its_members():
    ready = workloads.build("W8", "fedproto")
    offset = np.asarray(ready.train.offset)
    first, second = groups.parts(ready)
    for part, members in ((first, [0, 2, 4]), (second, [1, 3])):
        assert part.setting.groups is None
        assert part.workload.clients == part.workload.cohort == len(members)
        np.testing.assert_array_equal(part.train.offset, offset[members])
        np.testing.assert_array_equal(part.train.size, [10] * len(members))
    models = [part.workload.model for part in (first, second)]
    assert models == ["htcnn_yi5", "htcnn_yi2"]
    assert [part.task.number for part in (first, second)] == [0, 1]
    steps = [measure.steps(part, jax.random.key(0), 0, 2) for part in (first, second)]
    whole = measure.steps(ready, jax.random.key(0), 0, 2)
    assert sum(each.sum() for each in steps) == whole.sum() == 2 * 5
    # Three clients have the first model, two the second.
    count = {"htcnn_yi5": 10.0, "htcnn_yi2": 30.0}
    assert groups.mean(lambda part: count[part.workload.model], ready) == 18
    assert groups.mean(lambda part: None, ready) is None


@pytest.mark.usefixtures("pair")
def test_small_copies_have_a_client_of_each_architecture():
    small = workloads.shrink(WORKLOADS["W8"]._replace(model="htcnn_yi"), 0.01)
    assert (small.clients, small.cohort) == (5, 5)
    assert small.architectures == GROUPS["htcnn_yi"]


def test_figures_are_of_pairs_in_turn():
    sizes = SimpleNamespace(
        argument_size_in_bytes=5_000_000,
        temp_size_in_bytes=3_000_000,
        output_size_in_bytes=4_000_000,
        alias_size_in_bytes=2_000_000,
    )
    compiled = SimpleNamespace(memory_analysis=lambda: sizes)
    program = measure.Program(compiled, None, 31.4, 3_000_000)
    made = groups.Together(state=None, program=program, first_state_seconds=2.5)
    ready = SimpleNamespace(workload=WORKLOADS["W8"])
    figures = groups.figures(ready, made, SAMPLES, APART, rounds=2)
    told = figures["groups"]
    assert told["ratio"] == {"median": 1.5, "min": 1.2, "max": 2.0}
    assert told["sum_seconds_per_round"] == {"median": 2.5, "min": 2.0, "max": 3.0}
    medians = [each["median"] for each in told["alone_seconds_per_round"]]
    assert medians == [0.5, 2.0]
    result = {"workload": "W8", "method": "fml", "compile_seconds": 31.4}
    line = table._of_groups(result | figures | {"round_peak_bytes": 7_000_000})
    assert "2 groups, alone 0.5 + 2 s a round, in sum 2.5 (2 to 3)" in line
    assert "together 1.5 (1.2 to 2) times the sum" in line
    assert "compiled in 31.4 s, and the first state made in 2.5 s" in line
    assert "holds 10 MB a device, the process had 7 MB" in line
    assert groups.figures(ready, made, SAMPLES, [], rounds=2) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_a_method_for_one_architecture_is_told(monkeypatch):
    # Which others take several is found by trying them all, which takes seconds.
    monkeypatch.setattr(architectures, "taking_several", lambda: ["fml"])
    with pytest.raises(ValueError, match=r"fedavg takes .* several: fml"):
        workloads.build("W8", "fedavg")


@functools.cache
def bytes_of(count, clients):
    """Compiled bytes of a round of `clients`, in `count` groups of one model."""
    workload = WORKLOADS["W1"]._replace(
        model="mlp:hidden=(8,)",
        shape=(64,),
        clients=clients,
        rows=4,
        cohort=COHORT,
        batch_size=4,
        epochs=1,
    )
    task = workloads.make_task(workload)
    setting = workloads.make_setting(workload, task, "local")
    method = keeping_all(task, setting.local)
    of_groups = Groups((method,) * count, (task,) * count, tuple(range(count)))
    setting = setting._replace(mesh=None, groups=of_groups)
    return peak.compiled_bytes(peak.compile_setting(workload, task, setting))


def idle_bytes(count):
    """By how much a round grows with clients that do not train."""
    few, many = (bytes_of(count, clients) for clients in (FEW, MANY))
    return {name: many[name] - few[name] for name in few}


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.slow
def test_clients_that_do_not_train_take_as_much_in_any_number_of_groups(count):
    one, several = idle_bytes(1), idle_bytes(count)
    model = 4 * (64 * 8 + 8 + 8 * 10 + 10)
    assert one["clients"] == (MANY - FEW) * model
    assert several == one
    # Nothing of them is copied: at the most some numbers of each, for the draw.
    assert one["temporaries"] <= 40 * (MANY - FEW)


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_groups_are_timed_together_and_alone(tmp_path, monkeypatch):
    from pfljax.bench import cost

    monkeypatch.setattr(cost, "SIDE", 64)
    text = run(["W8"], methods=["fml"], repeats=2, out=tmp_path)
    (result,) = json.loads((tmp_path / "results.json").read_text())["results"]
    told = result["groups"]
    assert told["architectures"] == ["htcnn_yi5", "htcnn_yi2"]
    alone = [each["median"] for each in told["alone_seconds_per_round"]]
    # Of two samples the median is the mean.
    assert told["sum_seconds_per_round"]["median"] == pytest.approx(sum(alone))
    together = result["seconds_per_round"]
    least = together["min"] / told["sum_seconds_per_round"]["max"]
    assert least <= told["ratio"]["min"] <= told["ratio"]["max"]
    assert told["device_bytes"] > result["temp_bytes"]
    assert result["round_peak_bytes"] > 0
    assert [taken["steps"] for taken in result["samples"]] == [5, 5]
    # The meme of the smaller model goes down and up, for each of five clients.
    smaller = workloads.make_tasks(WORKLOADS["W8"])[0].proxy
    shapes = jax.eval_shape(smaller.init, jax.random.key(0))
    numbers = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert result["traffic_bytes_per_round"] == 5 * 2 * 4 * numbers
    assert "W8 fml: 2 groups, alone" in text
