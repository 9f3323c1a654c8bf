"""The laws on methods of one's own: a correct one, and one that breaks most of them."""

import pytest

from pfljax import conformance
from pfljax.cli import parser
from pfljax.conformance import Case, toy
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

    return fedavg(task, local)._replace(train=train, classes=True)
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

    def train(turn, server, client, data):  # 6: not as many steps as it may
        turn = turn._replace(steps=jnp.int32(2))
        w, metrics = fit(task.loss, server[0], data, turn, local)
        upload = w, turn.key  # 2 channel: no robust mean is made of keys
        here = jax.pure_callback(lambda x: x, jnp.zeros(()), jnp.zeros(()))  # 11
        return client + here, upload, metrics

    def aggregate(server, uploads, cohort):  # 4: as if all places were taken
        w = jax.tree.map(lambda leaf: leaf.mean(0), uploads[0])
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
    "1", "2", "2 channel", "2 origin", "2 mean", "4 width", "4 silent", "5",
    "5 draws", "6 work", "6 steps", "6 newcomer", "8", "9", "10", "11",
}  # fmt: skip


ROWS = '''"""A method in the manner of FedAMP: the server has a model a client.

https://example.org/paper

    Server   w_1 .. w_C       Client  nothing
    Message  w_k              Upload  w_k, trained
"""

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import tree


def rows(task, local, *, near: float):
    def init(params, num_clients, key):
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * num_clients), params)

    def aggregate(server, uploads, cohort):
        # Who did not report is written past the end: nowhere.
        ids = jnp.where(cohort.mask > 0, cohort.ids, cohort.num_clients)
        server = tree.put(server, ids, uploads)
        mean = jax.tree.map(lambda leaf: leaf.mean(0, keepdims=True), server)
        return tree.lerp(server, mean, near)

    return fedavg(task, local)._replace(
        init=init,
        message=lambda turn, server, client: tree.take(server, turn.id),
        aggregate=aggregate,
        personal=lambda turn, server, client, data: tree.take(server, turn.id),
        server_model=None,
        uploads_by_client=True,
    )
'''


@pytest.mark.slow
def test_methods_of_ones_own_are_held_to_the_laws(folder, capsys):
    """One without options and bytes, and one with both from the command line."""
    (folder / "good.py").write_text(GOOD)
    parser.run(["conformance", "good.py:good"])
    lines = capsys.readouterr().out.splitlines()
    said = {line.split("  ")[2].split(":")[0]: line for line in lines}
    assert list(said) == list(LAWS)
    assert said.pop("8").startswith("skip  good  8: ")
    assert said.pop("12").endswith("it takes clients of one architecture")
    assert said.pop("13").endswith("it needs classes")
    assert all(line.startswith("pass  good  ") for line in said.values())


@pytest.mark.slow
def test_a_server_may_have_records_by_client(folder, capsys):
    """Its options and its bytes come from the command line."""
    (folder / "rows.py").write_text(ROWS)
    whole = str(toy.WHOLE)
    parser.run(["conformance", "rows.py:rows:near=0.1", "--bytes", whole, whole])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(LAWS)
    alike = lines.pop(-2)
    assert alike.startswith("skip  rows-near=0.1  12: ")
    assert all(line.startswith("pass  rows-near=0.1  ") for line in lines)


@pytest.mark.slow
def test_records_that_are_of_no_client_break_law_5(folder):
    """The same method, which writes the first rows whoever took part."""
    text = ROWS.replace("cohort.ids, cohort", "jnp.arange(len(cohort.ids)), cohort")
    (folder / "rows.py").write_text(text)
    verdicts = list(
        conformance.check(Case("rows.py:rows", {"near": 0.1}), {"5": LAWS["5"]})
    )
    assert [v.law[0] for v in verdicts if v.error is not None] == ["5"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], "no method is given; expected pfljax conformance NAME"),
        (["dito"], "unknown algorithm 'dito'"),
        (["rows.py:rows"], "algorithm 'rows.py:rows' needs the parameter 'near'"),
        (["rows.py:rows:far=1"], "unknown parameter 'far'"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_runs(folder, names, says):
    (folder / "rows.py").write_text(ROWS)
    with pytest.raises(ValueError, match=says):
        conformance.run(names)


def test_an_origin_that_is_none_is_a_broken_law(folder):
    """Differences whose method does not say that they are some."""
    wrong = "w, metrics = fit(loss, w, data, turn, local)"
    other = "new, metrics = fit(loss, w, data, turn, local)"
    difference = "w = jax.tree.map(jnp.subtract, new, w)"
    assert wrong in GOOD
    text = GOOD.replace(wrong, f"{other}\n        {difference}")
    (folder / "good.py").write_text(text)
    laws = {number: LAWS[number] for number in ("2", "2 origin", "6 steps")}
    verdicts = list(conformance.check(Case("good.py:good"), laws))
    broken = {v.law.split(":")[0] for v in verdicts if v.error is not None}
    assert broken == {"2 origin"}


@pytest.mark.slow
def test_each_law_can_be_broken(folder):
    (folder / "bad.py").write_text(BAD)
    verdicts = list(conformance.check(Case("bad.py:bad", bytes=(1, 1))))
    broken = {v.law.split(":")[0] for v in verdicts if v.error is not None}
    assert broken == BROKEN


def test_a_broken_law_is_exit_code_1(folder, capsys):
    (folder / "crashes.py").write_text("def crashes(task, local):\n    return 1 / 0\n")
    with pytest.raises(SystemExit, match="1"):
        parser.run(["conformance", "crashes.py:crashes"])
    line = "FAIL  crashes  it runs: ZeroDivisionError: division by zero"
    assert capsys.readouterr().out.strip() == line
