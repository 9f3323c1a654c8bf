"""The status of a finished run: whether it diverged."""

import math

import pytest

from pfljax.simulate import results

GUESS = math.log(10)


def lines(first, last, test=1.0):
    """The log of two rounds with these training losses, and a test loss."""
    loss = {"metrics": {"loss": {"mean": test}}}
    record = {"split": "test", "clients": "all"} | loss
    evaluated = {"train_loss": last, "evaluations": [record]}
    evaluated["bytes_up"] = 80
    return [{"train_loss": first, "bytes_up": 40}, evaluated]


@pytest.mark.parametrize(
    ("first", "last", "test"),
    [
        (713.0, 307.0, 1.0),  # lr = 1000, from round 1 on
        (2.2, 5.0, 1.0),  # far beyond a guess
        (0.5, 2.5, 1.0),  # worse than a guess, and risen
        (None, 300.0, 1.0),  # not finite at first
        (2.0, None, 1.0),
        (2.0, 1.0, None),
    ],
)
def test_runs_that_have_diverged(first, last, test):
    assert results._explain_divergence(lines(first, last, test), GUESS)


@pytest.mark.parametrize(
    ("first", "last", "test"),
    [
        (1.6, 1.2, 1.0),
        (2.5, 2.4, 1.0),  # the first round of an untrained model
        (2.30, 2.31, 1.0),  # labels that nobody can learn
        (0.01, 0.1, 1.0),  # a cohort that is harder
        (0.1, 0.01, 9.0),  # overfitted, but trained
        (50.0, 4.0, 1.0),  # still falling
    ],
)
def test_runs_that_have_not(first, last, test):
    assert results._explain_divergence(lines(first, last, test), GUESS) == ""


def test_the_reason_names_the_losses():
    text = "loss is 307 in the last round, 713 in the first, and 2.303 for a guess"
    assert text in results._explain_divergence(lines(713.0, 307.0), GUESS)
    assert "not finite" in results._explain_divergence(lines(1.0, None), GUESS)


def test_a_last_round_without_reports_has_not_diverged():
    log = lines(1.0, None)
    log[0]["bytes_up"] = log[1]["bytes_up"] = 80
    assert results._explain_divergence(log, GUESS, up=40) == ""
    log[1]["bytes_up"] = 120
    assert "not finite" in results._explain_divergence(log, GUESS, up=40)
