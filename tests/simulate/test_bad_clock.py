"""Wrong devices, deadlines and modes are refused in one line, before compilation."""

import numpy as np
import pytest

from pfljax import Experiment
from pfljax.simulate import loop, width
from pfljax.simulate import run as experiment
from pfljax.sweep import sweep

BUFFER = "fedbuff:buffer=3"
GROUPS = "speed_groups"
WRONG = {  # settings, and what the line has
    "unknown profile": ({"profile": "speed_group"}, "did you mean 'speed_groups'"),
    "unknown mode": ({"mode": "fedbuf", "profile": GROUPS}, "did you mean 'fedbuff'"),
    "option of a profile": (
        {"profile": "lognormal:sigma=-1"},
        "sigma is -1; expected a finite number >= 0",
    ),
    "step of zero": (
        {"profile": "equal:step=0"},
        "step is 0; expected a finite number > 0",
    ),
    "no profile, deadline": (
        {"deadline": 2.0},
        "deadline is 2.0, but profile is 'none'; choose a profile",
    ),
    "no profile, mode": (
        {"mode": BUFFER},
        "'fedbuff:buffer=3', but profile is 'none'; choose a profile",
    ),
    "deadline below zero": (
        {"deadline": -1.0, "profile": GROUPS},
        "deadline is -1.0; expected a finite number",
    ),
    "deadline that is no number": (
        {"deadline": "soon", "profile": GROUPS},
        "deadline is 'soon'; expected a number or None",
    ),
    "deadline that nobody meets": (
        {"deadline": 1e-4, "profile": GROUPS},
        "deadline is 0.0001, but the fastest client takes .* no client would report",
    ),
    "deadline that nobody's whole work meets": (
        {"deadline": 0.1, "profile": "equal"},
        "the fastest client takes .* virtual seconds: no client would",
    ),
    "deadline and mode": (
        {"deadline": 2.0, "profile": GROUPS, "mode": "fedasync"},
        "mode 'fedasync' has no rounds to end",
    ),
    "buffer above the cohort": (
        {"profile": GROUPS, "mode": "fedbuff:buffer=6"},
        "buffer is 6, but 5 clients train at a time; choose buffer <= 5",
    ),
    "buffer of nobody": (
        {"profile": GROUPS, "mode": "fedbuff:buffer=0"},
        "buffer is 0; expected at least 1",
    ),
    "alpha": (
        {"profile": GROUPS, "mode": "fedasync:alpha=1.5"},
        "alpha is 1.5; expected a number > 0 and up to 1",
    ),
    "staleness": (
        {"profile": GROUPS, "mode": "fedasync:staleness=cubic"},
        "staleness is 'cubic'; expected 'constant' or 'polynomial' or 'hinge'",
    ),
    "dropped stragglers": (
        {"profile": GROUPS, "mode": BUFFER, "stragglers": 0.5, "drop_stragglers": True},
        "drop_stragglers is set, but mode 'fedbuff:buffer=3' waits for no client",
    ),
    "a method with more than a mean": (
        {"algorithm": "scaffold", "profile": GROUPS, "mode": BUFFER},
        "scaffold makes more of uploads than their mean; choose a method .* fedavg",
    ),
    "a method without uploads": (
        {"algorithm": "local", "profile": GROUPS, "mode": BUFFER},
        "choose a method .* ditto",
    ),
    "a selection with replacement": (
        {"selection": "by_size", "profile": GROUPS, "mode": BUFFER},
        "selection 'by_size' draws with replacement, another",
    ),
    "several devices": (
        {"profile": GROUPS, "mode": BUFFER, "devices": 2},
        "runs on one device",
    ),
    "several models": (
        {
            "profile": GROUPS,
            "mode": BUFFER,
            "model": "auto",
            "models": "mlp:hidden=(8,),mlp:hidden=(4,)",
        },
        "models are set, but mode 'fedbuff:buffer=3' takes one model for all clients",
    ),
}


@pytest.fixture
def idle(monkeypatch):
    """Fails the test where a run begins, or where its rounds are compiled."""

    def reached(*args):
        raise AssertionError("the mistake was not found before anything was compiled")

    monkeypatch.setattr(loop, "restore", reached)
    monkeypatch.setattr(width, "bytes_needed", reached)


def check_refused(tmp_path, settings, message):
    out = tmp_path / "run"
    job = {"algorithm": "fedavg", "model": "logistic", "out": str(out)} | settings
    with pytest.raises(ValueError, match=message) as error:
        experiment.run(Experiment(**job), quiet=True)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 450
    assert not (out / "config.json").exists()


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_in_one_line(tmp_path, name):
    check_refused(tmp_path, *WRONG[name])


@pytest.mark.slow
@pytest.mark.usefixtures("idle")
def test_a_file_of_devices_for_other_clients(tmp_path):
    path = tmp_path / "devices.npz"
    np.savez(path, step=np.ones(7), down=1.0, up=1.0)
    message = "step is no number, and not one for each of 20 clients"
    check_refused(tmp_path, {"profile": f"file:path={path}"}, message)


def test_a_sweep_tells_of_a_method_that_asynchronous_rounds_do_not_take():
    job = Experiment("scaffold", model="logistic", profile=GROUPS, mode=BUFFER)
    with pytest.raises(ValueError, match="scaffold makes more of uploads"):
        sweep(job, {"lr": [0.1, 0.2]})


@pytest.mark.slow
def test_a_sweep_tells_of_a_deadline_that_nobody_meets():
    job = Experiment("fedavg", model="logistic", profile=GROUPS, deadline=1e-4)
    with pytest.raises(ValueError, match="no client would report"):
        sweep(job, {"lr": [0.1, 0.2]})
