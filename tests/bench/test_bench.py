"""The bench: the work that it counts, what it writes, and its peer."""

import functools
import json
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny
from pfljax import engine
from pfljax.bench import cost, groups, measure, run, workloads
from pfljax.bench.power_law import power_law
from pfljax.core.types import Batch, Examples
from pfljax.simulate import flops

STEPS = {
    "W1": 2400,
    "W2": 400,
    "W4": 20,
    "W5": 2400,
    "W6": 250,
    "W7": 2000,
    "W8": 200,
    "W9": 200,
    "W10": 20,
    "W11": 8,
}
PARAMETERS = {
    "W1": 199_210,
    "W2": 2_156_490,
    "W3": 7_850,
    "W4": 819_920,
    "W5": 199_210,
    "W6": 1_626_442,
    "W7": 685,
    # The means of five and of four models.
    "W8": 1_497_534.8,
    "W9": 4_973_554,
    "W10": 11_173_962,
    "W11": 317_578,
}
NAMES = [
    pytest.param(name, marks=pytest.mark.slow)
    if len(workload.architectures) > 1
    else name
    for name, workload in workloads.WORKLOADS.items()
]


@pytest.fixture
def spans_only(monkeypatch):
    """Workloads of full size over a pool of one row."""

    def one_row(workload, count, rng):
        x = jnp.zeros((1, *workload.shape))
        return Examples(x, jnp.zeros(1, jnp.int32))

    monkeypatch.setattr(workloads, "draw_rows", one_row)


@functools.cache  # of several architectures it takes seconds
def build(name):
    return workloads.build(name, workloads.WORKLOADS[name].methods[0])


def test_power_law_sizes_are_those_of_the_peers():
    sizes = workloads.sizes(workloads.WORKLOADS["W3"])
    assert (sizes.min(), sizes.max(), sizes.sum()) == (10, 2260, 68_860)
    assert sizes[:12].tolist() == [350, 40, 90, 850, 420, 10, 80, 20, 20, 40, 20, 200]
    raw = power_law(1000)
    assert (raw.min(), raw.max(), raw.mean()) == (10, 2262, 69.0)


@pytest.mark.usefixtures("spans_only")
def test_steps_of_a_selection_that_learns_are_not_counted():
    ready = build("W1")
    learning = ready.setting.selection._replace(init=lambda: jnp.zeros(3))
    setting = ready.setting._replace(selection=learning)
    with pytest.raises(ValueError, match="the selection learns from each round"):
        measure.steps(ready._replace(setting=setting), jax.random.key(0), 0, 2)


@pytest.mark.usefixtures("spans_only")
@pytest.mark.parametrize("name", NAMES)
def test_steps_of_a_round_are_those_of_the_peers(name):
    ready, key = build(name), jax.random.key(0)
    w, sizes = ready.workload, np.asarray(ready.train.size)
    counts = measure.steps(ready, key, 3, 2)
    for i, round_ in enumerate((3, 4)):
        ids = engine.draw(ready.setting, (), key, jnp.int32(round_))
        expected = [w.epochs * math.ceil(sizes[k] / w.batch_size) for k in ids]
        assert counts[i].tolist() == expected
        assert len(set(ids.tolist())) == w.cohort
    if name in STEPS:
        assert counts.sum(1).tolist() == [STEPS[name]] * 2


@pytest.mark.usefixtures("spans_only")
@pytest.mark.parametrize("name", NAMES)
def test_models_are_those_of_the_peers(name):
    assert groups.mean(cost.parameters, build(name)) == PARAMETERS[name]


@pytest.mark.usefixtures("spans_only")
def test_flops_of_a_step_are_its_products():
    layers = ((784, 200), (200, 200), (200, 10))
    products = sum(3 * i * o for i, o in layers) - 784 * 200  # x needs no gradient
    w1, batch = workloads.build("W1", "fedavg"), 10
    assert cost.step_flops(w1) == 2 * batch * products
    assert cost.step_flops(workloads.build("W5", "ditto")) == 4 * batch * products
    assert cost.step_flops(workloads.build("W5", "superfed")) == 2 * batch * products
    gates, steps = 4 * 256, 80 * 50
    forward = (80 * 8 + 8 * gates + 256 * gates + 256 * gates + 256 * gates) * steps
    backward = 2 * forward - 80 * 8 * steps  # tokens need no gradient
    head = 3 * 50 * 256 * 80
    assert cost.step_flops(build("W4")) == 2 * (forward + backward + head)
    assert cost.step_bytes(build("W4")) is None
    assert cost.step_bytes(w1) > 4 * 3 * PARAMETERS["W1"]
    # XLA also counts what is no product: some operations a parameter and a unit.
    more = cost.step_xla_flops(w1) - cost.step_flops(w1)
    assert 0 < more < 4 * PARAMETERS["W1"]
    assert cost.step_xla_flops(build("W4")) is None


def test_flops_through_loops_and_branches():
    a = jnp.ones((4, 4))

    def scanned(a):
        return jax.lax.scan(lambda c, _: (c @ a, None), a, None, length=3)[0]

    def branched(a):
        return jax.lax.cond(a[0, 0] > 0, lambda a: a @ a @ a, lambda a: a @ a, a)

    assert flops.product_flops(scanned, a) == 3 * 128
    assert flops.product_flops(jax.jit(branched), a) == 2 * 128
    assert flops.has_loop(jax.jit(scanned), a)
    assert not flops.has_loop(branched, a)


@pytest.mark.parametrize("conv", ["im2col", "lax"])
def test_flops_of_a_convolution_do_not_depend_on_its_form(conv):
    from pfljax import models

    task = models.task(models.model("twocnn", 10, conv=conv), (8, 8, 3))
    params = jax.eval_shape(task.init, jax.random.key(0))
    batch = Batch.of_rows(jnp.zeros((2, 8, 8, 3)))
    products = 64 * 25 * 3 * 32 + 16 * 25 * 32 * 64 + 256 * 512 + 512 * 10
    assert flops.product_flops(task.predict, params, batch) == 2 * 2 * products


def test_lanes_wait_for_the_longest_of_their_chunk():
    counts = np.array([3, 10, 1, 4, 2])
    assert measure.lane_steps(counts, 1) == counts.sum()
    assert measure.lane_steps(counts, 2) == 2 * (10 + 3 + 1)
    assert measure.lane_steps(counts, None) == measure.lane_steps(counts, 9) == 50


def test_clients_of_w7_overlap_and_keep_a_hundred_numbers():
    ready = workloads.build("W7", "fedper", scale=0.002)
    end = np.asarray(ready.train.offset + ready.train.size)
    assert end.max() <= len(ready.train.examples.x) < ready.workload.clients * 20
    clients = ready.init(jax.random.key(0)).clients
    leaves = jax.tree.leaves(clients)
    assert sum(leaf[0].size for leaf in leaves) == 100
    assert len(leaves[0]) == ready.workload.clients == 2000


def test_rows_are_the_same_in_every_process():
    a, b = (workloads.build("W4", "fedavg", scale=0.1).train for _ in range(2))
    np.testing.assert_array_equal(a.examples.x, b.examples.x)
    assert a.examples.x.dtype == jnp.int32
    assert 0 <= a.examples.x.min() < a.examples.x.max() < 80


@pytest.mark.slow
def test_a_small_bench_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "SIDE", 64)
    line = 'JSON {"client_steps_per_s": 50, "of": "{workload} {algorithm}"}'
    command = f"{sys.executable} -c 'print(\"JSON {{}}\"); print({json.dumps(line)})'"
    text = run(
        ["W1", "W7"], rounds=2, repeats=2, peer=command, out=tmp_path, scale=0.02
    )
    found = json.loads((tmp_path / "results.json").read_text())
    assert {p.name for p in tmp_path.iterdir()} == {
        "results.json", "bench.png", "bench.pdf"
    }  # fmt: skip
    assert found["machine"]["jax"] == jax.__version__
    first, second = found["results"]
    assert (first["workload"], second["method"]) == ("W1", "fedper")
    assert [s["steps"] for s in first["samples"]] == [2 * 2 * 5] * 2  # 2 of 10 rows
    assert first["useful"] == 1
    assert first["peer"]["theirs"] == [50, 50]
    rates = [s["steps"] / s["seconds"] for s in first["samples"]]
    np.testing.assert_allclose(first["peer"]["ours"], rates)
    np.testing.assert_allclose(first["peer"]["ratio"], np.median(rates) / 50)
    share = np.median(rates) * first["flops_per_step"] / found["machine"]["peak_flops"]
    np.testing.assert_allclose(first["share_of_peak"]["median"], share)
    assert first["traffic_bytes_per_round"] == 2 * 2 * 4 * PARAMETERS["W1"]
    assert text.count("\n| W") == 2
    assert "peer 50, 50" in text


@pytest.mark.slow
def test_a_central_evaluation_is_timed_beside_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "SIDE", 64)
    small = workloads.WORKLOADS["W1"]._replace(test=30)
    monkeypatch.setitem(workloads.WORKLOADS, "W1", small)
    run(["W1"], rounds=1, repeats=1, out=tmp_path, scale=0.02)
    result = json.loads((tmp_path / "results.json").read_text())["results"][0]
    taken = result["samples"][0]
    expected = taken["steps"] / (taken["seconds"] + taken["evaluation"] / 10)
    rate = result["steps_per_second_with_evaluations"]["median"]
    np.testing.assert_allclose(rate, expected)


@pytest.mark.slow
def test_landscapes_are_timed_beside_a_peer(tmp_path):
    line = 'JSON {"client_steps_per_s": 4, "of": "{workload}"}'
    command = f"{sys.executable} -c 'print({json.dumps(line)})'"
    given = {"rounds": 3, "repeats": 2, "peer": command, "out": tmp_path}
    text = run(["plane", "lines"], scale=0.03, **given)
    told = json.loads((tmp_path / "landscapes.json").read_text())
    a, b = told["results"]
    assert (a["clients"], a["rows"], a["points"]) == (1, 60, 9)
    assert (b["clients"], b["rows"], b["points"]) == (3, 10, 9)
    # Products of an image: two convolutions, two dense layers.
    image = 2 * (1024 * 75 * 32 + 256 * 800 * 64 + 4096 * 512 + 512 * 10)
    assert a["flops_per_point"] == 60 * image
    for found in (a, b):
        rate = found["points_per_second"]["median"]
        assert found["ratio"] == pytest.approx(rate / 4)
        share = rate * found["flops_per_point"] / told["machine"]["peak_flops"]
        assert found["share_of_peak"] == pytest.approx(share)
    assert text.count("| 4 |") == 2
    with pytest.raises(ValueError, match="unknown landscape 'W1'; known: lines, plane"):
        run(["plane", "W1"], **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["W12"]}, "unknown workload 'W12'; known: W1, W10"),
        ({"names": ["W1"], "rounds": 0}, "rounds is 0; expected at least 1"),
        ({"names": ["W1"], "repeats": 0}, "repeats is 0"),
        ({"names": ["W1", "W2"], "peer": "python x.py"}, "write {workload} where"),
        ({"names": ["W5"], "peer": "x {workload}"}, "for ditto, superfed; write {alg"),
        ({"names": ["W1"], "peer": " "}, "--against is empty"),
        ({"names": ["W1"], "peer": "python 'x"}, "cannot be read"),
    ],
)
def test_wrong_settings_are_told_before_anything_runs(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(out=tmp_path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [0, 2**31])
@pytest.mark.parametrize("option", ["rounds", "repeats"])
@pytest.mark.parametrize("what", [["--public"], ["W1"], ["plane"]])
def test_nothing_is_timed_of_counts_without_sense(count, option, what, tmp_path):
    code, _, errors = tiny.main("bench", *what, f"--{option}", count, "--out", tmp_path)
    assert code == 2
    name = "points" if what == ["plane"] and option == "rounds" else option
    expected = "expected at least 1, below 2**31"
    assert errors == f"pfljax: {name} is {count}; {expected}\n"


def test_an_unknown_method_is_told():
    with pytest.raises(ValueError, match="unknown algorithm 'fedsgd'"):
        workloads.build("W1", "fedsgd", scale=0.02)


def test_the_command_has_its_options_and_errors_in_one_line():
    code, out, _ = tiny.main("bench", "--help")
    assert code == 0
    for option in ("--rounds", "--against", "--repeats", "--algorithm", "--out"):
        assert option in out
    code, _, errors = tiny.main("bench", "W12")
    assert code == 2
    assert errors.startswith("pfljax: unknown workload 'W12'")
