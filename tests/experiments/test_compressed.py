"""The study of compression: what is compared, and what its table says."""

from types import SimpleNamespace

import numpy as np
import pytest

from pfljax import Experiment, channel
from pfljax.core import components
from pfljax.runs.log import NEWEST


@pytest.fixture
def compressed(study):
    return study("compressed")


def run_of(accuracy, up=1000, down=3000, cohort=10):
    """A record of rounds, each evaluated, in which everybody sends `up` bytes."""
    lines = []
    for number, value in enumerate(accuracy, 1):
        record = {
            "split": "test",
            "clients": "all",
            "model": "personal",
            "when": NEWEST,
            "finetune": False,
            "metrics": {"accuracy": {"mean": value}},
        }
        line = {"round": number, "evaluations": [record]}
        line["bytes_up"] = number * cohort * up
        line["bytes_down"] = number * cohort * down
        lines.append(line)
    return SimpleNamespace(
        label="fedavg",
        rounds=len(lines),
        metrics=lines,
        experiment=Experiment(cohort=cohort),
        summary={"last": {"round": 0}},  # no round has the numbers of each client
        environment={},
        personal=SimpleNamespace(test=SimpleNamespace(figures=["accuracy"])),
    )


def test_channels_can_be_made_and_feedback_is_the_only_difference(compressed):
    kept = {}
    for name, text in compressed.CHANNELS.items():
        made = channel.make([components.parse(text)] if text else [])
        kept[name] = made is not None and made.memory is not None
    for name in ("sign", "top_k"):
        assert kept[name]
        assert not kept[name + compressed.PLAIN]
        text = compressed.CHANNELS[name + compressed.PLAIN]
        plain = components.parse(text)
        beside = components.parse(compressed.CHANNELS[name])
        assert plain.options == {**beside.options, "feedback": False}
    assert kept["low_rank"]
    assert not kept["whole"]
    assert not kept["qsgd"]


def test_bytes_are_counted_up_to_the_target(compressed):
    # The running mean of three reaches 0.8 at the fourth round.
    run = run_of([0.1, 0.8, 0.8, 0.8, 0.9])
    rounds, up, both = compressed.at_target(run, 0.8)
    assert rounds == 4
    assert up == pytest.approx(4 * 10 * 1000 / 1e6)
    assert both == pytest.approx(4 * 10 * 4000 / 1e6)
    assert compressed.upload_bytes(run) == 1000
    assert np.isnan(compressed.at_target(run, 0.95)).all()
