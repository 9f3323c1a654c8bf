"""The values of `--over` on the command line."""

import numpy as np
import pytest

from pfljax.cli.options import parse_over


def test_ranges_stand_for_their_values():
    over = [["lr", "log:1e-3..1e-1:5"], ["mu", "0", "lin:0.1..0.5:5"]]
    assert parse_over(over) == {
        "lr": [0.001, 0.003162, 0.01, 0.03162, 0.1],
        "mu": [0, 0.1, 0.2, 0.3, 0.4, 0.5],
    }


def test_random_values_are_those_of_their_seed():
    (first,) = parse_over([["lr", "log~1e-3..1e-1:400"]]).values()
    assert parse_over([["lr", "log~1e-3..1e-1:400@0"]])["lr"] == first
    assert parse_over([["lr", "log~1e-3..1e-1:400@1"]])["lr"] != first
    assert 0.001 <= min(first) < max(first) <= 0.1
    # Half of them lie below the geometric mean.
    assert np.mean(np.array(first) < 0.01) == pytest.approx(0.5, abs=0.1)
    (linear,) = parse_over([["mu", "lin~-1..1:400"]]).values()
    assert np.mean(linear) == pytest.approx(0, abs=0.15)


def test_whole_values_of_a_range_are_whole_numbers():
    values = parse_over([["rounds", "log:1..9:3"]])["rounds"]
    assert [(value, type(value)) for value in values] == [(1, int), (3, int), (9, int)]


@pytest.mark.parametrize(
    "text",
    [
        *("log:0..1:9", "lin:1..0:9", "log:0.1..1:1"),
        *("log:1e-3..1e-1", "lin~0..1", "log:a..b:3"),
    ],
)
def test_what_is_no_range_is_refused(text):
    with pytest.raises(
        ValueError, match=r"expected LOW\.\.HIGH:COUNT, with LOW < HIGH"
    ):
        parse_over([["lr", text]])


def test_what_is_left_out_is_an_axis():
    assert parse_over([], ["lr-decay"]) == {"without": [None, "lr_decay"]}
