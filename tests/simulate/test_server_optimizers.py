"""Runs whose server steps by an optimizer, under a schedule of the learning rate."""

import pytest

import tiny
from pfljax import Experiment, run
from pfljax.runs import checks, config

STEPPED = tiny.TINY.replace(
    algorithm="fedavg",
    schedule="warmup_cosine:warmup_steps=1,decay_steps=4",
    server_optimizer="fedyogi:learning_rate=0.03",
)
# Of `experiment.replace(hyper={"server_optimizer": ...})` before it was a setting.
OLD = {
    "sgd": "d8406eb9f9f8e4f5ef07a95c352792ae0f77158fe62601687bdf5e6795949c1b",
    "adam:b1=0.8": "13aa19845a57977e3d5805f9e180a63f0a833cb974d24ad3e4da2341105f39b2",
}


@pytest.mark.slow
def test_two_rounds_and_two_are_four_bit_for_bit(tmp_path):
    whole = STEPPED.replace(out=str(tmp_path / "whole"))
    first = STEPPED.replace(out=str(tmp_path / "first"), rounds=2)
    run(whole, quiet=True, report=False)
    run(first, quiet=True, report=False)
    run(first.replace(rounds=4), quiet=True, report=False)
    tiny.assert_same_arrays(
        tmp_path / "whole" / "per_client.npz", tmp_path / "first" / "per_client.npz"
    )


@pytest.mark.parametrize("text", OLD)
def test_runs_of_before_keep_their_digest(text):
    """Reptile's optimizer was an option: their config.json is read as a setting."""
    nested = config.to_dict(Experiment("reptile"))
    del nested["participation"]["server_optimizer"]
    nested["method"]["hyper"] = {
        "server_lr": 1.0, "server_optimizer": text, "finetune": 0
    }  # fmt: skip
    read = config.from_dict(nested)
    assert str(read.participation.server_optimizer) == text
    assert config.digest(read) == OLD[text]
    again = checks.resolve(Experiment("reptile", server_optimizer=text))
    assert config.digest(again) == OLD[text]


def test_the_default_of_a_method_is_written_out():
    resolved = checks.resolve(Experiment("pfedhn"))
    assert str(resolved.participation.server_optimizer) == "sgd:momentum=0.9"
    assert resolved.output.label == "pfedhn"
    labelled = checks.resolve(Experiment(server_optimizer="fedadam"))
    assert labelled.output.label == "fedavg server_optimizer=fedadam"
