"""Runs whose server steps by an optimizer, under a schedule of the learning rate."""

import pytest

import tiny
from pfljax import Experiment, run
from pfljax.runs import checks

STEPPED = tiny.TINY.replace(
    algorithm="fedavg",
    schedule="warmup_cosine:warmup_steps=1,decay_steps=4",
    server_optimizer="fedyogi:learning_rate=0.03",
)


@pytest.mark.slow
def test_two_rounds_and_two_are_four_bit_for_bit(tmp_path):
    whole = STEPPED.replace(out=str(tmp_path / "whole"))
    first = STEPPED.replace(out=str(tmp_path / "first"), rounds=2)
    run(whole, quiet=True, report=False)
    run(first, quiet=True, report=False)
    run(first.replace(rounds=4), quiet=True, report=False)
    tiny.assert_same_arrays(
        tmp_path / "whole" / "clients.npz", tmp_path / "first" / "clients.npz"
    )


def test_the_optimizer_is_in_the_label():
    labelled = checks.resolve(Experiment(server_optimizer="fedadam"))
    assert labelled.label == "fedavg server_optimizer=fedadam"
