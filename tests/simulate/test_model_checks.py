"""Models of a user's own method that cannot be evaluated, and states that change."""

import re

import pytest
from flax import linen, nnx

import tiny
from pfljax import algorithms, models, run
from pfljax.models import layers
from pfljax.simulate import begin
from pfljax.simulate.compare import compare
from pfljax.sweep import sweep


def check_message(error, *parts):
    """The message is one line that has these parts."""
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


WRONG = """import jax, jax.numpy as jnp
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.multi_task.ditto import ditto
def mym(task, local):
    m = {base}(task, local)
    return m._replace({role}={body})
"""


@pytest.mark.parametrize(
    ("role", "body", "expected"),
    [
        ("predict", "lambda p, b: m.predict(p, b)[:1]", "`predict` .* of shape"),
        ("quantities", "lambda w, v: None", "`quantities` .* None; expected a dict of"),
    ],
)
def test_models_that_cannot_be_evaluated(folder, tmp_path, role, body, expected):
    (folder / "mym.py").write_text(WRONG.format(base="ditto", role=role, body=body))
    small = tiny.TINY.replace(algorithm="mym.py:mym", out=str(tmp_path / "run"))
    for use in (lambda: run(small, quiet=True), lambda: sweep(small, {"seed": [0]})):
        with pytest.raises(ValueError, match=expected) as error:
            use()
        check_message(error, "the method 'mym.py:mym'")


@pytest.mark.parametrize(
    ("role", "body"),
    [
        pytest.param(
            "train",
            "lambda t, w, c, d: (jnp.zeros(3), *m.train(t, w, c, d)[1:])",
            marks=pytest.mark.slow,
        ),
        ("aggregate", "lambda w, u, c: jax.tree.map(jnp.sum, w)"),
    ],
)
def test_another_state_names_the_file(folder, tmp_path, role, body):
    (folder / "mym.py").write_text(WRONG.format(base="ditto", role=role, body=body))
    small = tiny.TINY.replace(algorithm="mym.py:mym", out=str(tmp_path / "run"))
    with pytest.raises(ValueError, match=f"mym: `{role}` returned another") as error:
        run(small, quiet=True)
    check_message(error, f"; mend {folder}/mym.py:6")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("None", "returned a NoneType; expected (client, upload, metrics)"),
        ("c, w", "returned 2 values; expected (client"),
        (
            "(c, w, {'lost': 0.0})",
            "returned the metrics ['lost']; give the data loss",
        ),
        ("(c, w, {'loss': jnp.ones(4)})", "the metric 'loss' of shape [4]"),
        (
            "(c, w, {'loss': 0.0, 'turn': 1j})",
            "the metric 'turn' 1j; expected one",
        ),
        ("(c, w, {'loss': 0.0, 3: 1.0})", "a metric with the name 3; expected a text"),
        (
            "(c, w, {'loss': 0.0, 'asked': 1.0})",
            "metric 'asked', which pfljax counts",
        ),
    ],
)
def test_training_that_returns_something_else(folder, tmp_path, result, expected):
    body = f"lambda t, w, c, d: ({result})"
    (folder / "mym.py").write_text(WRONG.format(base="ditto", role="train", body=body))
    job = tiny.TINY.replace(algorithm="mym.py:mym", model="logistic")
    with pytest.raises(ValueError, match=re.escape(expected)):
        begin.check_method(job, None, None)


def test_a_comparison_refuses_a_method_before_another_trains(folder, tmp_path):
    text = WRONG.format(base="ditto", role="train", body="lambda t, w, c, d: None")
    (folder / "mym.py").write_text(text)
    job = tiny.TINY.replace(model="logistic")
    methods = [job.replace(algorithm=name) for name in ("fedavg", "mym.py:mym")]
    with pytest.raises(ValueError, match="returned a NoneType"):
        compare(methods, [0], str(tmp_path), quiet=True)
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize("encoding", ["utf-16", "nul"])
def test_a_file_that_is_no_text_is_named(folder, encoding):
    code = "def mym(task, local):\n    pass\n"
    data = b"\0" + code.encode() if encoding == "nul" else code.encode(encoding)
    (folder / "mym.py").write_bytes(data)
    with pytest.raises(ValueError, match=r"mym.py cannot be imported") as error:
        algorithms.method("mym.py:mym")
    check_message(error, f"{folder}/mym.py: SyntaxError: ")


class Centred(linen.Module):
    """Takes the mean of the batch in every mode."""

    @linen.compact
    def __call__(self, x):
        return x - x.mean(0)


class Batched(nnx.Module):
    """Its normalisation cannot be told to leave the training mode."""

    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(64, rngs=rngs)

    def __call__(self, x):
        return self.norm(layers.flatten(x), use_running_average=False)


class Normed(nnx.Module):
    def __init__(self, rngs):
        self.body = Batched(rngs)
        self.head = nnx.Linear(64, 10, rngs=rngs)


def linen_task(norm, head=None):
    body = linen.Sequential([norm, layers.flatten])
    network = models.Network(body, head or linen.Dense(10))
    return models.task(network, (8, 8, 1), scale=16.0)


UNTRAINED = linen.Dense(10, kernel_init=linen.initializers.zeros)


class Residual(linen.Module):
    """Its branch begins with zeros, and hides the normalisation within."""

    @linen.compact
    def __call__(self, x):
        zeros = linen.initializers.zeros
        norm = linen.BatchNorm(use_running_average=False, scale_init=zeros)
        return x + norm(x)


@pytest.mark.parametrize(
    "task",
    [
        linen_task(linen.BatchNorm(use_running_average=False)),
        linen_task(Centred(), UNTRAINED),
        pytest.param(linen_task(Residual()), marks=pytest.mark.slow),
        pytest.param(models.task_from_nnx(Normed, (8, 8, 1)), marks=pytest.mark.slow),
    ],
)
def test_a_model_that_looks_at_its_batch_in_evaluation_is_refused(task, tmp_path):
    small = tiny.TINY.replace(algorithm="fedavg", model="mine", out=str(tmp_path / "r"))
    uses = (
        lambda: run(small, task=task),
        lambda: sweep(small, {"seed": [0]}, task=task),
    )
    for use in uses:
        with pytest.raises(ValueError, match="other examples of its batch") as error:
            use()
        check_message(error, "expected running statistics in evaluation mode")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("norm", [linen.BatchNorm(), layers.BatchNorm()])
def test_a_model_may_keep_running_statistics_or_say_that_it_has_none(norm):
    models.check_task(linen_task(norm), (8, 8, 1), 10)
