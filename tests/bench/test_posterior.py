"""What a posterior costs beside FedAvg: the table, and what is counted in it."""

import json

import pytest

import tiny
from pfljax.bench import posterior, run

SPREAD = {"median": 2.0, "min": 1.5, "max": 2.5}
PARAMETERS = 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10
HEAD = 200 * 10 + 10


def test_the_table_has_seconds_and_bytes():
    result = {
        "method": "pfedvem",
        "seconds_per_round": SPREAD,
        "ratio": SPREAD,
        "traffic_bytes": 1_600_000,
        "client_bytes": 16_000,
        "device_bytes": 200_000_000,
        "compile_seconds": 3.21,
    }
    line = posterior.markdown([result]).splitlines()[2]
    span = "2 (1.5 to 2.5)"
    assert line == f"| pfedvem | {span} | {span} | 1.6 | 0.016 | 200 | 3.2 |"


@pytest.mark.parametrize(
    "more", [["W1"], ["--against", "echo"], ["memory"], ["--rounds", "0"]]
)
def test_it_is_timed_alone(more, tmp_path):
    code, _, errors = tiny.main("bench", "posterior", *more, "--out", tmp_path / "out")
    assert code == 2
    assert errors.startswith("pfljax: ")
    assert "posterior is timed alone" in errors or "rounds is 0; expected" in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_method_is_timed_in_turn_with_fedavg(tmp_path):
    text = run(
        ["posterior"],
        methods=["pfedvem:head_steps=1,samples=1"],
        rounds=1,
        repeats=2,
        out=tmp_path,
        scale=0.03,
    )
    results = json.loads((tmp_path / "posterior.json").read_text())["results"]
    base, vem = results
    assert base["method"] == "fedavg"
    assert text.count("\n| ") == 3
    # Both send the model; a client of pFedVEM its confidence, too.
    assert base["traffic_bytes"] == 2 * 4 * PARAMETERS
    assert vem["traffic_bytes"] == 2 * 4 * PARAMETERS + 4
    # A mean and a spread for each number of the head.
    assert (base["client_bytes"], vem["client_bytes"]) == (0, 2 * 4 * HEAD)
    assert vem["device_bytes"] > base["device_bytes"] > 0
    for result in results:
        for name in ("seconds_per_round", "ratio"):
            spread = result[name]
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
