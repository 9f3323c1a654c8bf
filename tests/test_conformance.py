"""The laws of the architecture page, over every method of the registry.

Law 7, the limit identities, is test_limits.py.
"""

import ast
import inspect
import io
import json
import os
import tokenize
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import algorithms, engine, registry, selection
from pfljax.conformance import toy
from pfljax.core.communication import traffic_of
from pfljax.core.optimizers import sgd
from pfljax.core.training import budget
from pfljax.core.types import Batch, ClientData, Examples, Local, RunState, Turn
from pfljax.engine import rounds
from pfljax.runs import checkpoint

ROUNDS, COHORT, CLIENTS = 6, 5, len(toy.SIZES)
BODY, HEAD = 4 * 16, 4 * 15  # bytes
WHOLE = BODY + HEAD
BYTES = {  # down, up
    "local": (0, 0),
    "fedavg": (WHOLE, WHOLE),
    "fedprox": (WHOLE, WHOLE),
    "scaffold": (2 * WHOLE, 2 * WHOLE),
    "ditto": (WHOLE, WHOLE),
    "apfl": (WHOLE, WHOLE),
    "apfl_fedtorch": (WHOLE, WHOLE),
    "pfedme": (WHOLE, WHOLE),
    "lg_fedavg": (HEAD, HEAD),
    "fedrep": (BODY, BODY),
    "fedper": (BODY, BODY),
    "ifca": (2 * WHOLE, WHOLE + 2 * 4),  # two models down; one and its choice up
    "per_fedavg": (WHOLE, WHOLE),
    "superfed": (WHOLE, WHOLE),
    "lg_fedavg-mean_body=True-finetune=2": (
        HEAD,
        HEAD + BODY + 1,
    ),  # and whether it is new
}
BYTES |= json.loads(os.environ.get("PFLJAX_BYTES", "{}"))  # of methods elsewhere
VARIANTS = [
    ("fedprox", {"prox": "norm", "finetune": 2}),
    ("scaffold", {"option": "I", "finetune": 2}),
    ("ditto", {"prox": "norm", "personal_epochs": 3}),
    ("ifca", {"averaging": "gradients"}),
    ("superfed", {"mixing": "layer", "prox": "norm"}),
    ("apfl", {"as_in": "fedjax"}),
    ("apfl", {"as_in": "superfed-code", "judge_untrained": True}),
    ("lg_fedavg", {"mean_body": True, "finetune": 2}),
    ("pfedme", {"as_in": "superfed-code", "lam": 0.5}),
    ("pfedme", {"newcomer_steps": 2}),
    ("per_fedavg", {"variant": "first_order"}),
    ("per_fedavg", {"variant": "hessian_free", "adapt": 2}),
]
CASES = [(name, {}) for name in algorithms.methods()] + VARIANTS


class Played(NamedTuple):
    name: str
    label: str  # the name and the options
    setting: engine.Setting
    task: Any
    train: ClientData
    program: Any
    states: list[RunState]  # after rounds 0 .. ROUNDS, one call each
    built: list[
        tuple[int, int]
    ]  # runs of the loss in Python, programs; after each call


def _label(case):
    return "-".join([case[0], *(f"{k}={v}" for k, v in case[1].items())])


@pytest.fixture(scope="module", params=CASES, ids=_label)
def played(request) -> Played:
    return _play(CASES.index(request.param))


@cache  # pytest may tear the fixture down and set it up again
def _play(case) -> Played:
    name, options = CASES[case]
    factory, calls = algorithms.methods()[name], []
    task = toy.classifier()
    loss = task.loss

    def counted(*args):
        calls.append(1)
        return loss(*args)

    task = task._replace(loss=counted)
    local = Local(0.05, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-3))
    given = registry.given(factory, rounds=ROUNDS)
    algorithm = factory(task, local, **options, **given)
    setting = engine.Setting(algorithm, local, selection.uniform(COHORT, CLIENTS))
    train, _ = toy.ragged()
    program = engine.compile_rounds(setting, ROUNDS)
    first = engine.init(algorithm, task, CLIENTS, jax.random.key(1))
    states = [jax.device_put(first, jax.devices()[0])]  # as a restored one
    built = []
    for _ in range(ROUNDS):
        states.append(program(toy.copy(states[-1]), train, 1)[0])
        built.append((len(calls), program._cache_size()))
    label = _label(CASES[case])
    return Played(name, label, setting, task, train, program, states, built)


def test_law_1_a_second_call_compiles_nothing(played):
    traced, programs = played.built[0]
    assert traced > 0
    assert programs == 1
    assert set(played.built) == {(traced, programs)}


def test_law_2_shapes_stay_and_all_is_finite(played):
    shapes = [jax.tree.map(lambda a: (a.shape, a.dtype), s) for s in played.states]
    assert all(shape == shapes[0] for shape in shapes)
    for state in played.states:
        assert all(np.isfinite(array).all() for array in toy.arrays(state))
    assert [int(state.round) for state in played.states] == list(range(ROUNDS + 1))


def test_law_3_rounds_may_be_cut_anywhere(played):
    start, train = toy.copy(played.states[0]), played.train
    half, _ = played.program(start, train, 3)
    toy.assert_same(half, played.states[3])
    toy.assert_same(played.program(half, train, 3)[0], played.states[6])


@pytest.mark.parametrize(
    "played", [(name, {}) for name in algorithms.methods()], ids=_label, indirect=True
)
def test_law_3_stop_restore_and_go_on(played, tmp_path):
    with checkpoint.writer(tmp_path, "hash") as save:
        save(3, played.states[3])
    back = checkpoint.restore(tmp_path, played.states[3], "hash")
    toy.assert_same(played.program(back, played.train, 3)[0], played.states[6])


def test_laws_4_and_5_width_padding_and_order_change_nothing(played, monkeypatch):
    """Client i of the new federation is client old[i]: its rows, state and keys.

    They run in another order and in chunks of 3, which pad the cohort of 5.
    """
    old = jnp.asarray([5, 2, 7, 0, 3, 6, 1, 4])
    key_of, select = rounds.client_key, played.setting.selection
    monkeypatch.setattr(rounds, "client_key", lambda key, i: key_of(key, old[i]))
    renamed = select._replace(ids=lambda key: jnp.argsort(old)[select.ids(key)[::-1]])
    setting = played.setting._replace(selection=renamed, width=3)
    first, train = toy.copy(played.states[0]), played.train
    first = first._replace(clients=jax.tree.map(lambda a: a[old], first.clients))
    train = ClientData(train.examples, train.offset[old], train.size[old])
    state, _ = engine.compile_rounds(setting, ROUNDS)(first, train, ROUNDS)
    last = played.states[6]
    toy.assert_close(state.server, last.server)
    toy.assert_close(state.clients, jax.tree.map(lambda a: a[old], last.clients))


def test_law_6_clients_outside_the_cohort_are_unchanged(played):
    for before, after in zip(played.states, played.states[1:], strict=False):
        outside = np.setdiff1d(np.arange(CLIENTS), _cohort(int(before.round)))
        assert len(outside) == CLIENTS - COHORT
        for a, b in zip(*map(toy.arrays, (before.clients, after.clients)), strict=True):
            np.testing.assert_array_equal(a[outside], b[outside])


@cache
def _cohort(round_):
    """Whom every method asks in this round."""
    setting = engine.Setting(None, None, selection.uniform(COHORT, CLIENTS))
    return np.asarray(engine.draw(setting, jax.random.key(1), round_))


def test_a_client_may_do_any_part_of_the_work_and_be_judged_before_any(played):
    """Of stragglers and unseen clients: finite models; one step moves something."""
    method, task = played.setting.algorithm, played.task
    server, key = played.states[6].server, jax.random.key(7)
    data = toy.one(played.train, 0)

    @jax.jit
    def straggle(steps):
        client = method.init_client(task.init(key), jnp.int32(CLIENTS), key)
        turn = Turn(key, jnp.int32(ROUNDS - 1), steps)
        unseen = method.personal(turn, server, client, data)
        message = method.message(server, client)
        after, upload, _ = method.train(turn, message, client, data)
        return unseen, (after, upload), method.personal(turn, server, after, data)

    whole = int(budget(played.setting.local, data.size))
    found = [straggle(jnp.int32(steps)) for steps in (0, 1, whole)]
    assert all(np.isfinite(array).all() for array in toy.arrays(found))
    none, one, all_ = (
        np.concatenate([array.ravel() for array in toy.arrays(trained)])
        for _, trained, _ in found
    )
    if played.label != "ifca-averaging=gradients":  # whose work is one gradient
        assert not np.array_equal(none, one)
        assert not np.array_equal(one, all_)


def test_law_8_bytes_are_the_leaves_of_message_and_upload(played):
    assert played.name in BYTES, f"write the bytes of {played.name} into BYTES"
    traffic = traffic_of(played.setting.algorithm, played.task, CLIENTS, (3,))
    wanted = BYTES.get(played.label, BYTES[played.name])
    assert tuple(traffic) == tuple(wanted)


def test_law_9_test_rows_are_never_read(played):
    clean, poisoned = played.train, _poisoned(played.train)
    last = played.states[6]
    state, _ = played.program(toy.copy(played.states[0]), poisoned, ROUNDS)
    toy.assert_same(state, last)
    judged = _personal(played)
    models = judged(last, poisoned)
    toy.assert_same(models, judged(last, clean))
    predict = jax.vmap(played.setting.algorithm.predict, (0, None))
    logits = predict(models, Batch.of_rows(clean.examples.x))
    assert logits.shape == (CLIENTS, len(clean.examples.y), 3)
    assert np.isfinite(logits).all()


def _poisoned(train):
    """The same training rows among rows of NaN."""
    own = np.zeros(len(train.examples.y), bool)
    for offset, size in zip(train.offset, train.size, strict=True):
        own[offset : offset + size] = True
    assert not own.all()
    x = jnp.where(own[:, None], train.examples.x, jnp.nan)
    return train._replace(examples=Examples(x, train.examples.y))


def _personal(played):
    """Jitted (state, train) -> the personal models of all clients."""

    def run(state, train):
        def one(k, client, offset, size):
            steps = budget(played.setting.local, size)
            turn = Turn(engine.client_key(state.key, k), state.round, steps)
            data = ClientData(train.examples, offset, size)
            personal = played.setting.algorithm.personal
            return personal(turn, state.server, client, data)

        args = (jnp.arange(CLIENTS), state.clients, train.offset, train.size)
        return jax.vmap(one)(*args)

    return jax.jit(run)


@pytest.mark.parametrize("name", algorithms.methods())
def test_law_10_one_file_one_word_one_paper(name):
    factory = algorithms.methods()[name]
    path = Path(inspect.getsourcefile(factory))
    source = path.read_text()
    head = ast.get_docstring(ast.parse(source))
    assert path.stem == factory.__name__ == name
    for word in ("Server ", "Client ", "Message ", "Upload ", "https://arxiv.org/abs/"):
        assert word in head
    assert _code_lines(source) < 100


def _code_lines(source):
    """Lines with code: no blanks, comments or docstrings."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
            lines.add(token.start[0])
    return len(lines)
