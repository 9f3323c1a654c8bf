"""The laws on methods of one's own: a correct one, and one that breaks most of them."""

import importlib
import sys

import pytest

from pfljax import conformance
from pfljax.cli.main import main
from pfljax.conformance import Case
from pfljax.conformance.laws import LAWS

GOOD = '''"""A method that never calls `task.loss`. https://example.org/paper

    Server   w                Client  nothing
    Message  w                Upload  w_k
"""

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core.training import fit


def good(task, local):
    def loss(w, batch, key):
        logits = task.head(w, task.features(w, batch, key))
        log_p = jax.nn.log_softmax(logits)
        rows = jnp.take_along_axis(log_p, batch.y[:, None], 1)[:, 0]
        return -(rows * batch.mask).sum() / jnp.maximum(batch.mask.sum(), 1)

    def train(turn, w, client, data):
        w, metrics = fit(loss, w, data, turn, local)
        return client, w, metrics

    return fedavg(task, local)._replace(train=train)
'''
# What it breaks, by the number of the law.
BAD = """
import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import tree
from pfljax.core.training import fit


def bad(task, local):
    shared = fedavg(task, local)

    def train(turn, server, client, data):  # 6 work: not as many steps as it may
        turn = turn._replace(steps=jnp.int32(2))
        w, metrics = fit(task.loss, server[0], data, turn, local)
        here = jax.pure_callback(lambda x: x, jnp.zeros(()), jnp.zeros(()))  # 11
        return client + here, w, metrics

    def aggregate(server, uploads, cohort):  # 4: as if all places were taken
        w = jax.tree.map(lambda leaf: leaf.mean(0), uploads)
        return w, jnp.float32(server[1])

    def personal(turn, server, client, data):  # 6 newcomer; 9: all rows of the pool
        return tree.axpy(client + data.examples.x.sum(), server[0], server[0])

    return shared._replace(
        init=lambda params, num_clients, key: (params, jnp.asarray(1.0)),  # 1: weak
        init_client=lambda params, client_id, key: 1.0 / client_id,  # 2
        train=train,
        aggregate=aggregate,
        personal=personal,
    )
"""
BROKEN = {
    "1", "2", "4 width", "4 silent", "5", "6 work", "6 newcomer", "8", "9", "10", "11",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of one's own methods, of any name, forgotten afterwards."""
    package = importlib.import_module("pfljax.algorithms")
    monkeypatch.setattr(package, "__path__", list(package.__path__))
    monkeypatch.setenv("PFLJAX_METHODS", str(tmp_path))
    return tmp_path


def test_a_method_of_ones_own_is_held_to_the_laws(folder, monkeypatch, capsys):
    (folder / "good.py").write_text(GOOD)
    monkeypatch.setattr(sys, "argv", ["pfljax", "conformance", "good"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[:2] for line in lines] == [["pass", "good"]] * len(lines)
    assert len(lines) == len(LAWS) - 1  # no bytes are declared


def test_each_law_can_be_broken(folder):
    (folder / "bad.py").write_text(BAD)
    verdicts = list(conformance.check(Case("bad", bytes=(1, 1))))
    broken = {v.law.split(":")[0] for v in verdicts if v.error is not None}
    assert broken == BROKEN


def test_a_broken_law_is_exit_code_1(folder, monkeypatch, capsys):
    (folder / "crashes.py").write_text("def crashes(task, local):\n    return 1 / 0\n")
    monkeypatch.setattr(sys, "argv", ["pfljax", "conformance", "crashes"])
    with pytest.raises(SystemExit, match="1"):
        main()
    line = "FAIL  crashes  it can be played: ZeroDivisionError: division by zero"
    assert capsys.readouterr().out.strip() == line


def test_an_unknown_method_is_told_before_anything_runs():
    with pytest.raises(ValueError, match="unknown algorithm 'dito'"):
        next(conformance.run(["ditto", "dito"]))
