"""One's own functions in runs, beside named components."""

import sys

import numpy as np
import pytest

import tiny
from pfljax import Experiment, run
from pfljax.core.factories import component
from pfljax.models import mlp
from pfljax.runs import checks
from pfljax.simulate import begin, export
from pfljax.sweep import sweep

KINDS = {
    "algorithm": "(task, local)",
    "model": "(num_classes)",
    "dataset": "()",
    "partition": "(labels, num_clients, seed)",
    "noise": "(num_classes)",
    "selection": "(cohort)",
    "profile": "(num_clients)",
    "mode": "(cohort)",
    "channel": "()",
    "aggregation": "()",
    "optimizer": "(learning_rate)",
    "server_optimizer": "()",
    "schedule": "()",
    "log": "()",
}
MAKERS = {"dataset": "from_arrays", "partition": "from_indices"}
SMALL = tiny.TINY.replace(algorithm="fedavg", rounds=2, eval_every=1)
PARTS = """import jax.numpy as jnp
from pfljax import models
from pfljax.algorithms.fedavg import fedavg
from pfljax.selection import Selection

def method(task, local, *, factor: float = 1.0):
    return fedavg(task, local)

def net(num_classes, *, width: int = 8):
    return models.mlp(num_classes, hidden=(width,))

def first(cohort, num_clients, *, start: int = 0):
    ids = (start + jnp.arange(cohort)) % num_clients
    return Selection(cohort=cohort, choose=lambda state, key: ids)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_returned_is_checked_for_every_kind(folder, kind):
    (folder / "wrong.py").write_text(f"def f{KINDS[kind]}:\n    return 3\n")
    devices = {"profile": "equal"} if kind == "mode" else {}
    job = SMALL.replace(**devices, **{kind: "wrong.py:f"})
    with pytest.raises(ValueError, match=r"wrong\.py:f") as error:
        begin.check_method(job, None, None)
    assert "\n" not in str(error.value)
    assert "expected" in str(error.value)
    assert MAKERS.get(kind, "") in str(error.value)


@pytest.mark.parametrize("kind", [*KINDS, "models", "proxy"])
def test_arguments_and_options_are_checked_for_every_kind(folder, kind):
    takes = KINDS.get(kind, "(num_classes)").replace(")", ", *, lam: float = 1.0)")
    code = f"def few(a, b, c, d): pass\ndef f{takes.replace('(,', '(')}: pass\n"
    (folder / "wrong.py").write_text(code)
    for name in ("wrong.py:few", "wrong.py:g", "wrong.py:f:mu=1", "wrong.py:f:lam=x"):
        with pytest.raises(ValueError, match=r"wrong\.py") as error:
            checks.check(SMALL.replace(**{kind: name}))
        assert "\n" not in str(error.value)


def test_whole_numbers_of_float_options_are_one_run(folder):
    (folder / "parts.py").write_text(PARTS)
    same = [
        checks.resolve(Experiment(f"parts.py:method:factor={factor}"))
        for factor in ("2", "2.0")
    ]
    assert same[0] == same[1]
    assert same[0].label == "method factor=2.0"
    assert same[0].folder.startswith("runs/digits-method-s0-factor=2-")


def test_two_functions_of_one_name_are_no_points_of_one_sweep(folder):
    for name in ("a", "b"):
        (folder / f"{name}.py").write_text(PARTS)
    over = {"algorithm": ["a.py:method", "b.py:method"]}
    with pytest.raises(ValueError, match="one label"):
        sweep(SMALL, over, out=folder / "swept")


@pytest.mark.slow
def test_a_run_resumes_to_the_same_bits_and_says_what_has_changed(
    folder, monkeypatch, capfd
):
    (folder / "parts.py").write_text(PARTS)
    job = SMALL.replace(
        algorithm="parts.py:method",
        model="parts.py:net:width=4",
        selection="parts.py:first:start=1",
        rounds=4,
    )
    named = job.replace(algorithm="fedavg", model="mlp:hidden=(4,)", out="named")
    run(named, quiet=True, report=False)
    run(job.replace(out="resumed", rounds=2), quiet=True, report=False)
    assert "has changed" not in capfd.readouterr().err
    (folder / "parts.py").write_text(PARTS + "# another line\n")
    code, _, errors = tiny.main("resume", "resumed", "--rounds", 4)
    assert (code, errors.count("parts.py has changed")) == (0, 1)
    logs = [np.load(f"{name}/clients.npz") for name in ("named", "resumed")]
    assert logs[0].files == logs[1].files
    for name in logs[0].files:
        np.testing.assert_array_equal(*(log[name] for log in logs))
    monkeypatch.chdir(folder / "named")
    del sys.modules[f"{folder}/parts.py"]
    code, _, errors = tiny.main("resume", "../resumed", "--rounds", 5)
    assert (code, errors.count("\n")) == (2, 1)
    assert "parts.py" in errors


@component
def wide(num_classes, *, width: int = 4):
    return mlp(num_classes, hidden=(width,))


@pytest.mark.slow
def test_a_function_of_a_module_is_a_component_in_python(tmp_path, monkeypatch):
    out = str(tmp_path / "run")
    run(SMALL.replace(model=wide(width=5), out=out), quiet=True, report=False)
    assert export.server_model(out)["head"]["kernel"].shape == (5, 10)
    # A notebook may define it again.
    job = SMALL.replace(model=wide(width=5), out=str(tmp_path / "again"))
    again = lambda num_classes, *, width: mlp(num_classes, hidden=(3,))  # noqa: E731
    monkeypatch.setattr(sys.modules[__name__], "wide", again)
    run(job, quiet=True, report=False)
    assert export.server_model(job.out)["head"]["kernel"].shape == (3, 10)
