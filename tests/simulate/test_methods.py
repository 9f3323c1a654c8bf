"""Broken methods of one's own, and models that lack what a method needs."""

import sys

import jax
import pytest

import tiny
from pfljax import Experiment, run
from pfljax.conformance.trial import compilations
from pfljax.runs.folder import read_partition
from pfljax.simulate import components
from pfljax.simulate.shape import Shape
from pfljax.sweep import sweep

SHAPE = Shape(20, (8, 8), 10)


def build(algorithm="mym.py:mym", model="logistic", shape=SHAPE):
    """The setting of a run of this method, and its task."""
    experiment = Experiment(algorithm, model=model)
    task = components.make_task(experiment, shape)
    return components.make_setting(experiment, task, shape).algorithm, task


def check_message(error, *parts):
    """The message is one line that has these parts."""
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "def mym():\n    pass",
            "mym.py:1: mym takes (); expected (task, local, *",
        ),
        (
            "\ndef mym(task, local, lam):\n    pass",
            "mym.py:2: mym takes (task, local, lam); expected",
        ),
        (
            "def mym(task, local):\n    return 3",
            "mym.py:mym returned is 3, of type int; expected",
        ),
    ],
)
def test_factories(folder, source, expected):
    (folder / "mym.py").write_text(source)
    with pytest.raises(ValueError, match="mym") as error:
        build()
    check_message(error, expected)


@pytest.mark.slow
def test_a_method_that_is_sound_is_as_it_was(folder):
    (folder / "mym.py").write_text(
        "from pfljax.algorithms.multi_task.ditto import ditto\n"
        "def mym(task, local, *, lam: float = 0.1):\n"
        "    if lam > 2:\n        raise ValueError('lam is large')\n"
        "    return ditto(task, local, lam=lam)\n"
    )
    algorithm, _ = build()
    assert algorithm.endpoints is None
    small = tiny.TINY.replace(algorithm="mym.py:mym", rounds=1)
    # The factory looks at `lam`: each value is a program of its own.
    swept = sweep(small, {"lam": [0.1, 0.2]}, out=folder / "swept")
    assert len(swept.results) == 2


@pytest.mark.parametrize("algorithm", ["fedper"])
def test_a_model_without_a_body_is_refused(algorithm, tmp_path):
    job = tiny.TINY.replace(algorithm=algorithm, out=str(tmp_path / "run"))
    message = f"{algorithm} treats parts .* no parameters in its body; choose .* mlp"
    with pytest.raises(ValueError, match=message) as error:
        run(job.replace(model="logistic"), quiet=True)
    check_message(error)
    assert not (tmp_path / "run" / "config.json").exists()
    with pytest.raises(ValueError, match=message):
        sweep(job.replace(model="logistic"), {"lr": [0.1]})


def test_a_convex_solver_refuses_a_network(tmp_path):
    """Before anything is compiled."""
    out = tmp_path / "run"
    job = tiny.TINY.replace(algorithm="mocha", out=str(out), model="auto")
    message = "^mocha is a convex solver, but the model is a network: .* model logistic"
    with compilations() as events, pytest.raises(ValueError, match=message) as error:
        run(job, quiet=True)
    check_message(error)
    assert not events
    assert not (out / "config.json").exists()
    algorithm, _ = build("mocha")
    assert algorithm.linear


@pytest.mark.parametrize("shape", [(60,), (32, 32, 3)])
def test_what_auto_stands_for_has_a_body_and_a_head(shape):
    _, task = build("fedper", "auto", SHAPE._replace(input_shape=shape))
    assert set(jax.tree.leaves(task.groups)) == {"body", "head"}


@pytest.mark.slow
def test_a_run_says_which_model_it_took(tmp_path):
    manifest = read_partition(tiny.finished(tmp_path)[0])
    assert manifest["model"] == "mlp:hidden=(8,)"


WAITING = """import jax, time
from pfljax.algorithms.fedavg import fedavg
def wait(seconds):
    time.sleep(float(seconds))
    return seconds
def mym(task, local):
    shared = fedavg(task, local)
    def train(turn, server, client, data):
        client, upload, metrics = shared.train(turn, server, client, data)
        loss = metrics["loss"]
        seconds = 75.0 * (turn.id == 0)
        metrics["loss"] = loss + 0 * jax.pure_callback(wait, loss, seconds)
        return client, upload, metrics
    return shared._replace(train=train)
"""


@pytest.mark.slow
def test_a_device_may_wait_longer_than_a_minute_for_another(folder):
    """XLA by itself takes one that waits for so long for stuck, and aborts."""
    (folder / "mym.py").write_text(WAITING)
    small = tiny.TINY.replace(algorithm="mym.py:mym", rounds=1, cohort=6)
    out = str(folder / "run")
    done = tiny.command_line("run", *tiny.options(small.replace(out=out, devices=2)))
    assert done.returncode == 0, done.stderr
    assert "stuck" not in done.stderr


AGAIN = """from pfljax.algorithms.fedavg import fedavg
def mym(task, local):
    def aggregate(server, uploads, cohort):
        return jax.tree.map(lambda leaf: leaf * {factor}, server)
    return fedavg(task, local)._replace(aggregate=aggregate)
"""


@pytest.mark.slow
def test_a_method_whose_file_is_loaded_again_is_another(folder):
    file = folder / "mym.py"
    losses = []
    for factor in (1.0, 2.0):
        file.write_text("import jax\n" + AGAIN.format(factor=factor))
        if losses:
            del sys.modules[str(file)]
        out = folder / f"run{factor}"
        job = tiny.TINY.replace(algorithm="mym.py:mym", out=str(out), rounds=2)
        result = run(job, quiet=True, report=False)
        (swept,) = sweep(job, {"seed": [0]}, out=folder / f"swept{factor}").results
        of_run = result.server.test.loss
        assert of_run == pytest.approx(swept.server.test.loss, rel=1e-4)
        losses.append(of_run)
    once, again = losses
    assert once != pytest.approx(again)
