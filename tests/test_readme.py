"""The Python of the README runs as it stands, twice in the same folders."""

import re
import tomllib

import numpy as np
import pytest

import tiny
from checkout import ROOT
from pfljax import Experiment, data, report
from pfljax.simulate import compare
from pfljax.simulate import run as experiment

README = ROOT / "README.md"


@pytest.fixture(scope="module")
def blocks():
    """The Python blocks of the README, in order."""
    return re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to run in, where runs are short and nothing is drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write_run_report", _blank)
    monkeypatch.setattr(report.write, "_comparison_pictures", lambda *given: [])
    short = _short(experiment.run_at_once)
    for module in (experiment, compare):
        monkeypatch.setattr(module, "run_at_once", short)
    return tmp_path


def _blank(folder):
    (folder / "report.html").write_text("")


def _short(run_at_once):
    def wrapped(jobs, federations, task=None, quiet=True, report=True, callback=None):
        jobs = [job.replace(rounds=2, epochs=1) for job in jobs]
        return run_at_once(jobs, federations, task, True, report)

    return wrapped


def test_the_readme_prints_the_accuracy_of_the_personal_models(blocks, here, capsys):
    head, _, _ = blocks[0].partition("params =")
    exec(head, {})
    printed = float(capsys.readouterr().out)
    with np.load("runs/mine/per_client.npz") as arrays:
        personal = arrays["personal/test/accuracy"][-1].mean()
        server = arrays["server/test/accuracy"][-1].mean()
    assert printed == pytest.approx(personal, abs=1e-6)
    # Else the line would also be right with the other model.
    assert abs(personal - server) > 0.05


def test_the_readme_names_the_lowest_versions_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = re.findall(r"([\w-]+)>=([\d.]+)", " ".join(project["dependencies"]))
    text = README.read_text("utf-8")
    sentence = re.search(r"lowest versions of .*?: (.*?) and so on", text, re.DOTALL)
    named = re.findall(r"\b([a-z-]+)\s(\d[\d.]*\d)", sentence[1])
    assert {"jax", "flax", "numpy"} <= dict(named).keys()
    assert set(named) <= set(bounds)


@pytest.mark.slow
def test_the_readmes_python_runs_and_goes_on(blocks, here, capsys):
    quick, own, exported, _ = blocks
    assert len(quick.splitlines()) < 15
    quick = quick.replace("[0, 1, 2]", "[0, 1]")
    for _ in range(2):
        names = {}
        exec(quick, names)
        exec(own, names)
    assert "| fedper |" in capsys.readouterr().out
    assert names["params"]["body"]["kernel"].shape == (64, 16)
    arrays = data.load("digits")
    assert (arrays.shift, arrays.scale) == (0.0, 16.0)
    run = Experiment(model="mlp", out="runs/x")
    experiment.run(run)
    code, _, errors = tiny.main("export", "runs/x", "--client", 3)
    assert code == 0, errors
    names["images"] = arrays.x[:5]
    exec(exported, names)
    np.testing.assert_allclose(names["logits"], names["same"], rtol=1e-5, atol=1e-5)


def test_the_readmes_sweep_runs(blocks, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(blocks[-1].replace("rounds=10", "rounds=2, epochs=1"), {})
    assert (tmp_path / "runs" / "sweep" / "sweep.csv").exists()
    assert "mu" in capsys.readouterr().out
