"""What asynchronous rounds cost: the table, and that all is timed."""

import json

import pytest

import tiny
from pfljax.bench import asynchronous, run

SPREAD = {"median": 1.2, "min": 1.1, "max": 1.3}


def test_the_table_has_ratios():
    result = {
        "mode": "fedasync",
        "clients": 10_000,
        "cohort": 100,
        "uploads": 3000,
        "seconds": SPREAD,
        "ratio": SPREAD,
        "cpu_ratio": SPREAD,
    }
    line = asynchronous.markdown([result]).splitlines()[2]
    span = "1.2 (1.1 to 1.3)"
    expected = f"| fedasync | 10,000 | 100 | 3,000 | {span} | {span} | {span} |"
    assert line == expected


@pytest.mark.parametrize("more", [["W1"], ["--against", "echo"], ["--rounds", "0"]])
def test_it_is_timed_alone(more, tmp_path):
    out = tmp_path / "out"
    code, _, errors = tiny.main("bench", "asynchronous", *more, "--out", out)
    assert code == 2
    assert "asynchronous is timed alone" in errors or "rounds is 0; expected" in errors
    assert errors.count("\n") == 1
    assert not out.exists()


@pytest.mark.slow
def test_modes_are_timed_in_turn_with_synchronous_rounds(tmp_path):
    text = run(["asynchronous"], rounds=2, repeats=2, out=tmp_path, scale=0.01)
    results = json.loads((tmp_path / "asynchronous.json").read_text())["results"]
    assert [result["mode"] for result in results] == ["fedbuff", "fedbuff", "fedasync"]
    assert text.count("\n| ") == 4
    assert all(result["cpu_ratio"]["min"] > 0 for result in results)
