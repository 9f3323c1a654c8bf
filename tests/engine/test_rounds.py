import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfljax import engine, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.interpolation.superfed import superfed
from pfljax.algorithms.local import local as alone
from pfljax.channel import Traffic, count_traffic
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.training import fit
from pfljax.core.types import Local
from pfljax.engine import chunked_vmap

TASK = toy.quadratic()
LOCAL = Local(0.1, batch_size=4, epochs=2)
CLIENTS = len(toy.SIZES)


def both(task=TASK, local=LOCAL):
    """FedAvg that also keeps every client's last upload, to see who trained."""
    shared = fedavg(task, local)

    def train(turn, w, client, data):
        w, metrics = fit(task.loss, w, data, turn, local)
        return w, w, metrics

    return shared._replace(train=train, init_client=lambda params, k, key: params)


def fixed(ids, mask=None):
    """The same cohort every round; who has mask 0 does not report."""
    ids = jnp.asarray(ids, jnp.int32)
    mask = jnp.ones(len(ids)) if mask is None else jnp.asarray(mask, jnp.float32)
    return selection.Selection(
        cohort=len(ids),
        choose=lambda state, key: ids,
        work=lambda state, key, ids, steps: (steps, mask),
    )


def round_with(select, method=None):
    """(state before, state after, metrics) of one round."""
    setting = engine.Setting(method or both(), LOCAL, select)
    state = engine.init(setting, TASK, CLIENTS, jax.random.key(0))
    run = jax.jit(lambda s, data: engine.one_round(setting, s, data))
    return state, *run(state, toy.noisy_clients())


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 9),
    width=st.none() | st.integers(1, 10),
    seed=st.integers(0, 9),
)
def test_results_come_back_in_the_order_given(count, width, seed):
    steps = jnp.asarray(np.random.default_rng(seed).integers(1, 5, count))
    args = (jnp.arange(count), {"x": jnp.arange(2.0 * count).reshape(count, 2)})

    def f(k, tree_):
        return 10 * k, tree_["x"] + k

    tens, moved = chunked_vmap.over_clients(f, args, steps, width)
    np.testing.assert_array_equal(tens, 10 * np.arange(count))
    np.testing.assert_array_equal(moved, args[1]["x"] + np.arange(count)[:, None])


@pytest.mark.parametrize("width", [1, 2])
def test_chunks_hold_clients_of_like_work_largest_first(width):
    steps, seen = jnp.asarray([3, 9, 1, 7, 8]), []

    def f(s):
        jax.debug.callback(lambda v: seen.append(int(v)), s)
        return s

    jax.block_until_ready(chunked_vmap.over_clients(f, (steps,), steps, width))
    jax.effects_barrier()
    chunks = [set(seen[i : i + width]) for i in range(0, len(seen), width)]
    order = [9, 8, 7, 3, 1] + [1] * (-5 % width)
    expected = [set(order[i : i + width]) for i in range(0, len(order), width)]
    assert chunks == expected


def traced_once(method):
    """The method, whose `aggregate` may be traced once: so many programs use it."""
    chex.clear_trace_counter()
    # A bound method: chex takes no record, and knows a function by its file.
    once = chex.assert_max_traces(method.aggregate.__call__, n=1)
    return method._replace(aggregate=once)


def test_one_program_runs_any_number_of_rounds():
    setting = engine.Setting(fedavg(TASK, LOCAL), LOCAL, selection.uniform(3, CLIENTS))
    setting = setting._replace(algorithm=traced_once(setting.algorithm))
    program, train = engine.compile_rounds(setting, at_most=5), toy.noisy_clients()
    state = engine.init(setting, TASK, CLIENTS, jax.random.key(0))
    whole, history = program(toy.copy(state), train, 5)
    part, few = program(toy.copy(state), train, 2)
    again, rest = program(part, train, 3)
    toy.assert_same(whole, again)
    for name, values in history.items():
        assert values.shape == (5,)
        joined = np.concatenate([few[name][:2], rest[name][:3]])
        np.testing.assert_array_equal(values, joined)
        assert not np.any(few[name][2:])  # no round, no metric
    nothing, _ = program(toy.copy(state), train, 0)
    toy.assert_same(nothing, state)


def test_who_does_not_report_keeps_its_state_and_is_not_averaged():
    before, after, metrics = round_with(fixed([6, 1, 4], mask=[1, 0, 1]))
    _, without, _ = round_with(fixed([6, 4]))
    toy.assert_close(after._replace(cohort=without.cohort), without, 1e-6)
    assert metrics["reported"] == 2
    old, new = toy.flat(before.clients), toy.flat(after.clients)
    np.testing.assert_array_equal(np.any(old != new, 1).nonzero()[0], [4, 6])


def test_when_nobody_reports_nothing_changes_but_the_round():
    before, after, metrics = round_with(fixed([6, 1], mask=[0, 0]))
    asked = jnp.asarray([6, 1], jnp.int32)
    toy.assert_same(after, before._replace(round=after.round, cohort=asked))
    assert after.round == 1
    assert metrics["reported"] == 0
    assert np.isnan(metrics["loss"])


def test_a_client_drawn_twice_trains_once_and_counts_twice():
    _, after, metrics = round_with(fixed([2, 2, 5]))
    _, once, _ = round_with(fixed([2, 5]))
    toy.assert_close(after.clients, once.clients, 1e-6)
    trained = toy.flat(after.clients)
    weight = np.array([2 * toy.SIZES[2], toy.SIZES[5]])
    expected = np.average(trained[[2, 5]], axis=0, weights=weight)
    np.testing.assert_allclose(toy.flat(after.server), expected, rtol=1e-5)
    assert metrics["reported"] == 3


def test_draws_with_replacement_weigh_the_same():
    cohort = fixed([2, 2, 5])._replace(replacement=True)
    _, after, metrics = round_with(cohort)
    trained = toy.flat(after.clients)
    expected = np.average(trained[[2, 5]], axis=0, weights=[2, 1])
    np.testing.assert_allclose(toy.flat(after.server), expected, rtol=1e-5)
    assert metrics["reported"] == 2


def test_metrics_are_means_over_examples_of_those_who_reported():
    method = both()

    def train(turn, w, client, data):
        client, upload, _ = both().train(turn, w, client, data)
        return client, upload, {"loss": jnp.float32(data.size)}

    _, _, metrics = round_with(
        fixed([0, 1, 2], mask=[1, 1, 0]), method._replace(train=train)
    )
    assert float(metrics["loss"]) == pytest.approx((3 * 3 + 20 * 20) / 23)


def test_a_key_belongs_to_a_client_and_a_round_not_to_a_place():
    _, first, _ = round_with(fixed([6, 1, 4]))
    _, second, _ = round_with(fixed([4, 7, 6]))
    a, b = toy.flat(first.clients), toy.flat(second.clients)
    np.testing.assert_allclose(a[[4, 6]], b[[4, 6]], rtol=1e-6)
    key = jax.random.key(0)
    words = {tuple(toy.arrays(engine.client_key(key, k))[0]) for k in range(50)}
    assert len(words) == 50


def test_cohorts_and_their_counts_agree():
    setting = engine.Setting(alone(TASK, LOCAL), LOCAL, selection.uniform(3, CLIENTS))
    key = jax.random.key(4)
    drawn = [engine.draw(setting, (), key, r) for r in range(6)]
    state = engine.init(setting, TASK, CLIENTS, key)
    state, _ = engine.compile_rounds(setting, 6)(state, toy.noisy_clients(), 6)
    counts = np.bincount(np.concatenate(drawn), minlength=CLIENTS)
    np.testing.assert_array_equal(state.participations, counts)
    np.testing.assert_array_equal(state.cohort, drawn[-1])
    assert (counts > 0).sum() > 3


@pytest.mark.parametrize(
    ("method", "width"),
    [(both(), 2), pytest.param(alone(TASK, LOCAL), None, marks=pytest.mark.slow)],
)
def test_methods_of_one_seed_train_the_same_cohort(method, width):
    setting = engine.Setting(method, LOCAL, selection.uniform(3, CLIENTS), width)
    state = engine.init(setting, TASK, CLIENTS, jax.random.key(0))
    after, _ = engine.compile_rounds(setting, 1)(
        toy.copy(state), toy.noisy_clients(), 1
    )
    drawn = sorted(after.cohort.tolist())
    moved = np.any(toy.flat(state.clients) != toy.flat(after.clients), 1)
    np.testing.assert_array_equal(np.flatnonzero(moved), drawn)


def test_a_late_client_starts_as_if_it_had_been_there():
    method, key = superfed(TASK, LOCAL), jax.random.key(7)
    setting = engine.Setting(method, LOCAL, selection.uniform(3, 5))
    state = engine.init(setting, TASK, 5, key)
    params = TASK.init(derive(key, "params"))
    late = engine.init_client(method, params, jnp.int32(3), key)
    toy.assert_close(late, tree.take(state.clients, 3), 1e-6)
    assert not np.allclose(toy.flat(late.v), toy.flat(tree.take(state.clients, 2).v))
    more = engine.init(setting, TASK, 9, key)
    toy.assert_close(tree.take(more.clients, jnp.arange(5)), state.clients, 1e-6)


CHANGES = {
    "structure": (lambda w: (w, w), "the leaf .* is missing, expected float32"),
    "empty": (lambda w: w | {"none": None}, "it is PyTreeDef.*'none'.*, expected PyTr"),
    "shape": (
        lambda w: w | {"head": w["head"][None]},
        r"the leaf \['head'\] is float32\[1, 1\], expected float32\[1\]; keep the str",
    ),
    "dtype": (
        lambda w: w | {"head": jnp.int32(w["head"])},
        r"the leaf \['head'\] is int32\[1\], expected float32\[1\]; keep",
    ),
}


@pytest.mark.parametrize("changed", CHANGES)
@pytest.mark.parametrize("function", ["train", "aggregate"])
def test_a_state_of_another_form_is_refused_by_the_function_that_returned_it(
    function, changed
):
    change, says = CHANGES[changed]
    method = both()

    def train(turn, w, client, data):
        client, upload, metrics = method.train(turn, w, client, data)
        return change(client), upload, metrics

    # A lambda has no name of its own, so its role names it.
    wrong = {
        "train": train,
        "aggregate": lambda *args: change(method.aggregate(*args)),
    }[function]
    role = {"train": "client", "aggregate": "server"}[function]
    with pytest.raises(
        ValueError, match=f"`{function}` returned another {role}"
    ) as error:
        round_with(fixed([1, 2]), method._replace(**{function: wrong}))
    assert re.search(says, str(error.value))
    assert str(error.value).startswith("test_a_state_of_another_form")
    assert "\n" not in str(error.value)


def test_a_number_of_python_is_a_state():
    method = both()._replace(init_client=lambda params, k, key: 0.0)

    def train(turn, w, client, data):
        return 1.0, *both().train(turn, w, client, data)[1:]

    _, after, _ = round_with(fixed([1, 2]), method._replace(train=train))
    np.testing.assert_array_equal(after.clients, [0, 1, 1, 0, 0, 0, 0, 0])


def test_traffic_runs_nothing():
    def loud(*_):
        raise AssertionError("ran")

    method = fedavg(TASK, LOCAL)

    def train(turn, w, client, data):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        jax.pure_callback(loud, shape, w["head"][0])
        return client, {"half": w["body"].astype(jnp.float16)}, {}

    found = count_traffic(method._replace(train=train), TASK, 4, (4,))
    assert found == Traffic(down=12, up=4)
