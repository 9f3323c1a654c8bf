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
from pfljax.bench import measure, run, workloads
from pfljax.bench.run import count_flops
from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Examples

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
    name
    for name, workload in workloads.WORKLOADS.items()
    if len(workload.architectures) == 1  # others take half a minute to trace
]


@pytest.fixture
def spans_only(monkeypatch):
    """Workloads of full size over a pool of one example."""

    def one_row(workload, count, rng):
        x = jnp.zeros((1, *workload.shape))
        return Examples(x, jnp.zeros(1, jnp.int32))

    monkeypatch.setattr(workloads, "draw_examples", one_row)


@functools.cache  # of several architectures it takes seconds
def build(name):
    return workloads.build(name, workloads.WORKLOADS[name].methods[0])


def test_power_law_sizes_are_those_of_the_peers():
    sizes = workloads.sizes(workloads.WORKLOADS["W3"])
    assert (sizes.min(), sizes.max(), sizes.sum()) == (10, 2260, 68_860)
    assert sizes[:12].tolist() == [350, 40, 90, 850, 420, 10, 80, 20, 20, 40, 20, 200]
    raw = workloads.power_law(1000)
    assert (raw.min(), raw.max(), raw.mean()) == (10, 2262, 69.0)


@pytest.mark.usefixtures("spans_only")
def test_steps_of_a_selection_that_learns_are_not_counted():
    ready = build("W1")
    learning = ready.setting.selection._replace(init=lambda: jnp.zeros(3))
    setting = ready.setting._replace(selection=learning)
    with pytest.raises(ValueError, match="the selection learns from each round"):
        measure.count_steps(
            ready._replace(setting=setting), jax.random.key(0), 0, rounds=2
        )


@pytest.mark.slow
@pytest.mark.usefixtures("spans_only")
@pytest.mark.parametrize("name", NAMES)
def test_steps_of_a_round_are_those_of_the_peers(name):
    ready, key = build(name), jax.random.key(0)
    w, sizes = ready.workload, np.asarray(ready.train.size)
    counts = measure.count_steps(ready, key, 3, 2)
    for i, round_ in enumerate((3, 4)):
        ids = engine.draw(ready.setting, (), key, jnp.int32(round_))
        expected = [w.epochs * math.ceil(sizes[k] / w.batch_size) for k in ids]
        assert counts[i].tolist() == expected
        assert len(set(ids.tolist())) == w.cohort
    if name in STEPS:
        assert counts.sum(1).tolist() == [STEPS[name]] * 2


@pytest.mark.parametrize(
    "name",
    [
        # Several large models are traced in ten seconds.
        pytest.param(
            name, marks=pytest.mark.slow if name in ("W8", "W9", "W11") else ()
        )
        for name in workloads.WORKLOADS
    ],
)
def test_models_are_those_of_the_peers(name):
    tasks = workloads.make_tasks(workloads.WORKLOADS[name])
    sizes = [tree.nbytes(shapes_of_model(task)) / 4 for task in tasks]
    assert np.mean(sizes) == PARAMETERS[name]


@pytest.mark.usefixtures("spans_only")
def test_flops_of_a_step_are_its_products():
    layers = ((784, 200), (200, 200), (200, 10))
    products = sum(3 * i * o for i, o in layers) - 784 * 200  # x needs no gradient
    w1, batch = workloads.build("W1", "fedavg"), 10
    ditto = workloads.build("W5", "ditto")
    superfed = workloads.build("W5", "superfed")
    for ready, models in ((w1, 1), (ditto, 2), (superfed, 1)):
        flops = count_flops(ready)
        assert 1 < flops / (2 * models * batch * products) < 2
    assert count_flops(build("W4")) is None  # XLA counts the body of a loop once


def test_clients_of_w7_overlap_and_keep_a_hundred_numbers():
    ready = workloads.build("W7", "fedper", scale=0.002)
    end = np.asarray(ready.train.offset + ready.train.size)
    assert end.max() <= len(ready.train.examples.x) < ready.workload.clients * 20
    clients = ready.init(jax.random.key(0)).clients
    leaves = jax.tree.leaves(clients)
    assert sum(leaf[0].size for leaf in leaves) == 100
    assert len(leaves[0]) == ready.workload.clients == 2000


def test_examples_are_the_same_in_every_process():
    a, b = (workloads.build("W4", "fedavg", scale=0.1).train for _ in range(2))
    np.testing.assert_array_equal(a.examples.x, b.examples.x)
    assert a.examples.x.dtype == jnp.int32
    assert 0 <= a.examples.x.min() < a.examples.x.max() < 80


@pytest.mark.slow
def test_a_small_bench_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "SIDE", 64)
    line = 'JSON {"client_steps_per_s": 50, "of": "{workload} {algorithm}"}'
    command = f"{sys.executable} -c 'print(\"JSON {{}}\"); print({json.dumps(line)})'"
    out = tmp_path / "bench"
    code, text, _ = tiny.main(
        "bench", "W3", "--rounds", 2, "--repeats", 2, "--against", command, "--out", out
    )
    assert code == 0
    *lines, _ = text.splitlines()  # the last one has the path
    assert len(lines) < 30
    assert max(map(len, lines)) <= 80
    assert [path.name for path in out.iterdir()] == ["results.json"]
    written = json.loads((out / "results.json").read_text())
    assert written["machine"]["jax"] == jax.__version__
    [result] = written["results"]
    assert (result["workload"], result["method"]) == ("W3", "fedavg")
    rates = result["steps_per_second"]["all"]
    assert result["peer"]["all"] == [50, 50]
    assert result["ratio"] == pytest.approx(np.median(rates) / 50)
    share = np.median(rates) * result["flops_per_step"]
    share /= written["machine"]["peak_flops"]
    assert result["share_of_peak"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["W12"]}, "unknown workload 'W12'; known: W1, W10"),
        ({"names": ["W1"], "rounds": 0}, "rounds is 0; expected at least 1"),
        ({"names": ["W1"], "repeats": 2**31}, "repeats is 2147483648"),
        ({"names": ["W1", "W2"], "against": "python x"}, "write {workload} where"),
        ({"names": ["W5"], "against": "x {workload}"}, "for ditto, superfed; write"),
        ({"names": ["W1"], "against": " "}, "--against is empty"),
        ({"names": ["W1"], "against": "python 'x"}, "cannot be read"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(out=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_an_unknown_method():
    with pytest.raises(ValueError, match="unknown algorithm 'fedsgd'"):
        workloads.build("W1", "fedsgd", scale=0.02)
