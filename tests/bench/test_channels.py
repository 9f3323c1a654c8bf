"""What channels add to a round: the table, and what is counted in it."""

import json

import pytest

import tiny
from pfljax.bench import channels, run

PARAMETERS = 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10


def test_the_table_has_percentages_and_bytes():
    result = {
        "channel": "sign",
        "percent": {"median": 3.04, "min": -1.0, "max": 5.0},
        "seconds_per_round": {"median": 0.5, "min": 0.4, "max": 0.6},
        "bytes_up": 25_000,
    }
    line = channels.markdown([result]).splitlines()[2]
    assert line == "| sign | 3.0 (-1.0 to 5.0) | 0.5 | 0.025 |"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--against", "echo"], "channels are timed alone"),
        (["--rounds", "0"], "rounds is 0; expected"),
        (["topk"], "unknown channel 'topk'"),
    ],
)
def test_bad_input_gets_one_line(more, says, tmp_path):
    code, _, errors = tiny.main("bench", "channels", *more, "--out", tmp_path / "out")
    assert code == 2
    assert says in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_channel_is_timed_in_turn_with_none(tmp_path):
    text = run(["channels", "sign"], rounds=1, repeats=2, out=tmp_path, scale=0.03)
    none, sign = json.loads((tmp_path / "channels.json").read_text())["results"]
    assert text.count("\n| ") == 3
    assert none["bytes_up"] == 4 * PARAMETERS
    # A bit a number and a float each of six leaves.
    assert sign["bytes_up"] == -(-(PARAMETERS + 6 * 32) // 8)
    assert sign["percent"]["min"] <= sign["percent"]["max"]
