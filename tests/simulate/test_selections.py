"""Selections by name in whole runs: their inputs, resuming, wrong settings."""

import jax
import numpy as np
import pytest

import tiny
from pfljax import Experiment
from pfljax.simulate import loop, simulation
from pfljax.simulate import run as experiment
from pfljax.simulate.federation import build_federation
from pfljax.simulate.loop import save_population
from pfljax.simulate.shape import make_shape

JOB = tiny.TINY.replace(algorithm="ditto", public=0.1, out=None)
REFUSED = {
    "robin-cohort": ({"selection": "round_robin", "cohort": 9, "clients": 8}, "cohort"),
    "robin-option": ({"selection": "round_robin:places=3"}, "unknown parameter 'place"),
    "coins-places": ({"selection": "bernoulli:places=2"}, "expected 5 <= places <= 20"),
    "coins-part": ({"selection": "bernoulli:places=2.5"}, "places is 2.5; expected a"),
    "pattern": ({"selection": "availability:pattern=x"}, "pattern is 'x'; expected 'h"),
    "beta": ({"selection": "availability:beta=1"}, "beta is 1.*expected a number >= 0"),
    "trace": ({"selection": "availability:pattern=trace"}, "file is None; expected a "),
    "no-trace": ({"selection": "availability:pattern=trace,file=no.npz"}, "no.npz can"),
    "choice": ({"selection": "power_of_choice:candidates=3"}, "expected 5 <= candidat"),
    "choice-loss": ({"selection": "power_of_choice:loss=none"}, "loss is 'none'; exp"),
    "choice-batch": (
        {"selection": "power_of_choice:loss=all,batch_size=0"}, "expected at least 1",
    ),
    "choice-local": (
        {"selection": "power_of_choice:loss=all", "algorithm": "local"},
        "clients evaluate the server.*this one's server has no single model of al",
    ),
    "oort-pacer": ({"selection": "oort:pacer=-1"}, "pacer is -1; expected"),
    "tiers": ({"selection": "tifl:tiers=30"}, "a tier has 0 of the 20 clients"),
    "tier-small": ({"selection": "tifl"}, "the cohort is 5, but a tier has 4 of the 2"),
    "tier-policy": ({"selection": "tifl:policy=best"}, "policy is 'best'; expected 'a"),
    "tier-sum": (
        {"selection": "tifl:tiers=2,probabilities=(0.5,0.6)"}, "that sum to 1, one a t",
    ),
    "sae-rule": ({"selection": "fedsae:rule=ora"}, "rule is 'ora'; expected 'ira' or "),
    "sae-gain": ({"selection": "fedsae:gain=0"}, "gain is 0.*; expected a finite numb"),
    "oort-share": ({"selection": "oort:exploration=2"}, "exploration is 2.*; expected"),
    "cmab-rows": ({"selection": "cmab"}, "cmab needs examples at.*public=0.1"),
    "favor-rows": ({"selection": "favor"}, "favor needs examples at.*public=0.1"),
    "favor-target": ({"selection": "favor:target=2", "public": 0.1}, "target is 2.*; "),
    "cmab-uploads": (
        {"selection": "cmab", "public": 0.1, "algorithm": "scaffold"},
        "uploads have to be models, such as.*of an upload here, the leaf",
    ),
    "favor-local": (
        {"selection": "favor", "public": 0.1, "algorithm": "local"},
        "this one's server has no single model of all",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_settings_are_one_line_before_anything_runs(name, tmp_path, monkeypatch):
    def reached(run):
        raise AssertionError("the mistake was not found before the run began")

    monkeypatch.setattr(loop, "restore", reached)
    settings, expected = REFUSED[name]
    with pytest.raises(ValueError, match=expected) as error:
        experiment.run(Experiment(out=str(tmp_path / "run"), **settings))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.slow
def test_without_a_profile_a_row_takes_a_second():
    job = JOB.replace(selection="tifl:tiers=3,policy=fast", cohort=2)
    federation, _ = build_federation(job)
    select = simulation.simulation(job, federation).setting.selection
    found = {
        client
        for seed in range(20)
        for client in select.choose((), jax.random.key(seed)).tolist()
    }
    fastest = np.argsort(federation.train.size, kind="stable")[:2]
    assert found == set(fastest.tolist())


def test_the_selection_gets_the_labels_of_each_client():
    job = JOB.replace(selection="availability:pattern=labels", clients=6)
    federation, _ = build_federation(job)
    shape = make_shape(job, federation)
    train = federation.train
    labels = np.asarray(train.examples.y)
    inputs = dict(shape.for_selection)
    for k, found in enumerate(inputs["least_label"]):
        start = int(train.offset[k])
        own = labels[start : start + int(train.size[k])]
        assert found == pytest.approx(own.min() / 9)
        assert inputs["greatest_label"][k] == pytest.approx(own.max() / 9)
        assert inputs["label_count"][k] == pytest.approx(len(set(own.tolist())) / 10)


def ran(job, folder):
    experiment.run(job.replace(out=str(folder)), quiet=True, report=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("selection", "store"),
    [("favor:components=2,hidden=4", "device"), ("oort", "disk")],
)
def test_ended_after_a_save_a_run_goes_on_with_the_same_bits(
    selection, store, tmp_path, monkeypatch
):
    job = JOB.replace(selection=selection, state_storage=store)
    whole = ran(job, tmp_path / "whole")

    def stop(*args):
        save_population(*args)
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr("pfljax.simulate.loop.save_population", stop)
        with pytest.raises(InterruptedError):
            ran(job, tmp_path / "cut")
    tiny.assert_same_run(ran(job, tmp_path / "cut"), whole)
