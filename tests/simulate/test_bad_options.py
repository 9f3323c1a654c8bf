"""A wrong option of a method is one line that names it, before anything runs.

Of posteriors, relations, interpolation and meta-learning.
"""

import pytest

from pfljax import Experiment
from pfljax.core.components import Component
from pfljax.simulate import loop, width
from pfljax.simulate import run as experiment
from pfljax.sweep import sweep

NAN, INF = float("nan"), float("inf")
NOT_NEGATIVE = "a finite number >= 0"
POSITIVE = "a finite number > 0"
DEVIATION = "a standard deviation from 1e-18 to 1e18"
SHARE = "a number from 0 to 1"
PROPER = "a number > 0 and below 1"
AT_LEAST_ONE = "at least 1"

# Method, option, values out of its range, and what is expected: a row for each range.
RANGES = [
    ("pfedvem", "scale", [0.0, -1.0, NAN, INF, 1e-30], DEVIATION),
    ("pfedvem", "head_steps", [-1], "at least 0"),
    ("virtual", "damping", [-0.1, 1.5, NAN], SHARE),
    ("fedamp", "sigma", [0.0, -1.0, NAN], POSITIVE),
    ("heurfedamp", "own_weight", [1.5, -0.1], SHARE),  # or None
    ("fedem", "components", [0, -3], AT_LEAST_ONE),
    # Without held-out examples it could not evaluate, with those alone not train.
    ("fedfomo", "holdout", [0.0, 1.0, -0.2], PROPER),
    ("apple", "mu", [-0.1, INF], NOT_NEGATIVE),
    ("mapper", "global_steps", [-1], "at least 0, or None"),
]

# Method, options, other settings, and what the message tells.
OTHERS = {
    "vem-no-body": ("pfedvem", {}, {"model": "logistic"}, "no parameters in its body;"),
    "vem-type": ("pfedvem", {"scale": "x"}, {}, "scale is 'x'; expected a number"),
    "vem-tau": ("pfedvem", {"tau": 1.0}, {}, "unknown parameter 'tau'; known: draws, "),
    "bayes-sigma": ("pfedbayes", {"sigma": 1.0}, {}, "unknown parameter 'sigma'; kno"),
    "virtual-private": ("virtual", {"private": 1}, {}, "is 1; expected True or False"),
    "em-half": ("fedem", {"components": 2.5}, {}, "is 2.5; expected a whole number"),
    "amp-start": ("fedamp", {"start": "x"}, {}, "start is 'x'; expected .*'cloud'"),
    "heur-start": ("heurfedamp", {"start": "x"}, {}, "'x'; expected .*'cloud'"),
    "ala-layers": ("fedala", {"layers": 9}, {}, "layers is 9; .* at most 2, the modul"),
    "l2gd-pull": (
        "l2gd", {"lam": 50.0}, {"lr": 0.1}, "is 20.0; expected at most 1",
    ),
    "mapper-order": (
        "mapper", {"lowest": 0.8}, {}, "lowest is 0.8; expected at most highest, 0.75",
    ),
    "clusters-many": (
        "hypcluster", {"clusters": 21}, {}, "clusters is 21; expected at most 20",
    ),
    "cluster-optimizer": (
        "hypcluster", {}, {"server_optimizer": "adamm"}, "server optimizer 'adamm'; ",
    ),
    "server-rate": (
        "fedavg", {}, {"server_optimizer": "adam"}, "needs the parameter 'learning_ra",
    ),
    "server-field": (
        "fedavg", {}, {"server_optimizer": "fedadam:b1=1.5"}, "b1 is 1.5; expected a n",
    ),
    "server-no-model": (
        "scaffold", {}, {"server_optimizer": "fedadam"},
        "server of scaffold does not keep one model",
    ),
    "server-mode": (
        "fedavg", {}, {"server_optimizer": "fedadam", "mode": "fedbuff",
        "profile": "equal"}, "mode is 'fedbuff'; expected 'sync'",
    ),
    "schedule-steps": (
        "scaffold", {}, {"schedule": "cosine:decay_steps=4,by=step"},
        "computes with one learning rate for all steps",
    ),
    "schedule-zeros": (
        "fedavg", {}, {"schedule": "constant:value=0", "rounds": 7},
        "which is 0 in the first 7 rounds, so that nothing would be trained",
    ),
    "schedule-zero-steps": (
        "fedavg", {}, {"schedule": "exponential:transition_steps=1,decay_rate=0.5,"
        "init_value=0,by=step"}, "which is 0 in the first 1000 local steps",
    ),
    "loses-all": (
        "fedavg", {}, {"channel": "lost:share=1"}, "share is 1; .* and below 1",
    ),
    "merges-nothing": (
        "fedavg", {}, {"mode": "fedasync:alpha=0", "profile": "equal"},
        "alpha is 0; expected a number > 0",
    ),
    "reptile-optimizer": (
        "reptile", {}, {"server_optimizer": "adam:b1=2"}, "b1 is 2; expected a number",
    ),
}  # fmt: skip


@pytest.fixture
def idle(monkeypatch):
    """Fails the test where a run gets as far as its first compiled function."""

    def reached(run):
        raise AssertionError("the mistake was not found before the run began")

    monkeypatch.setattr(loop, "restore", reached)


def check_refused(tmp_path, algorithm, hyper, settings, message):
    """The run is refused in one line that has the message, and leaves no trace."""
    out = tmp_path / "run"
    job = Experiment(Component(algorithm, hyper), out=str(out), **settings)
    with pytest.raises(ValueError, match=message) as error:
        experiment.run(job)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert not (out / "config.json").exists()


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(("algorithm", "option", "values", "expected"), RANGES)
def test_numbers_out_of_range(tmp_path, algorithm, option, values, expected):
    for value in values:
        message = f"{option} is {value}; expected {expected}"
        check_refused(tmp_path, algorithm, {option: value}, {}, message)


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_fit(tmp_path, name):
    check_refused(tmp_path, *OTHERS[name])


def test_fedfomo_needs_no_validation_examples(tmp_path, monkeypatch):
    """It holds out training rows of its own."""

    def reached(*args):
        raise InterruptedError

    monkeypatch.setattr(width, "bytes_needed", reached)
    job = Experiment("fedfomo", validation=0.0, out=str(tmp_path / "run"))
    with pytest.raises(InterruptedError):
        experiment.run(job)


def test_a_sweep_refuses_a_negative_variance_as_a_run_does():
    with pytest.raises(ValueError, match=r"scale is -1\.0; expected a standard dev"):
        sweep(Experiment("pfedvem"), {"scale": [1.0, -1.0]})
