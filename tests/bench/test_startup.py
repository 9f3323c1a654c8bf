"""What a run costs before and after its rounds: the seconds and programs told."""

import json

import pytest

import tiny
from pfljax.bench import run, startup
from pfljax.runtime import milestones, progress

SMALL = (
    "--model",
    "mlp:hidden=(8,)",
    "--clients",
    "4",
    "--cohort",
    "2",
    "--epochs",
    "1",
)


def test_seconds_between_milestones_add_up():
    def line(name, time, programs=0, fetched=0):
        return {"name": name, "time": time, "programs": programs, "fetched": fetched}

    reached = [line("begins", 3.0), line("round", 7.0), line("round", 8.5, 4)]
    reached.append(line("ends", 9.0, 6, 5))
    expected = {
        "imports": 2.0,
        "first_round": 4.0,
        "training": 1.5,
        "end": 1.0,
        "whole": 8.5,
        "programs": 6,
        "fetched": 5,
    }
    assert startup.between(reached, 1.0, 9.5) == expected


def test_a_run_tells_of_its_rounds_where_it_is_asked_to(tmp_path, monkeypatch):
    file = tmp_path / "milestones.jsonl"
    with progress.progress(2, 0, 1) as show:
        show(1, loss=0.0)
        monkeypatch.setenv(milestones.FILE, str(file))
        show(2, loss=0.0, accuracy=0.0)
    [line] = milestones.read(file)
    assert line["name"] == "round"
    assert line["programs"] >= line["fetched"] >= 0


@pytest.mark.parametrize("more", [["W1"], ["--against", "echo"]])
def test_it_is_timed_alone(more, tmp_path):
    code, _, errors = tiny.main("bench", "startup", *more, "--out", tmp_path / "out")
    assert code == 2
    assert errors.startswith("pfljax: startup is timed alone, without other workloads")


@pytest.mark.parametrize("option", ["rounds", "repeats"])
def test_nothing_is_timed_without_rounds_or_repeats(option, tmp_path):
    with pytest.raises(ValueError, match=f"{option} is 0; expected at least 1"):
        run(["startup"], out=tmp_path, **{option: 0})


@pytest.mark.slow
def test_a_run_that_fails_is_told(tmp_path):
    with pytest.raises(ValueError, match="failed: pfljax: lr is -1"):
        startup.run(["startup"], options=["--lr", "-1"], out=tmp_path)


@pytest.mark.slow
def test_a_run_needs_few_programs_and_fetches_them_all_when_warm(tmp_path):
    text = startup.run(
        ["startup"],
        rounds=2,
        repeats=1,
        out=tmp_path,
        options=[*SMALL, "--eval-every", "1"],
    )
    assert text.count("| superfed |") == 2
    written = json.loads((tmp_path / "startup.json").read_text())
    cold, warm = written["results"]
    assert (cold["cache"], warm["cache"]) == ("cold", "warm")
    # Rounds, three of the first state, its key, and evaluations, which are two programs
    # each: which models are judged, and their metrics, which methods share. The models
    # along a path are judged together, with their ensemble, by a program of their own.
    assert cold["programs"] == warm["programs"] <= 13
    assert cold["fetched"] == 0
    assert warm["fetched"] == warm["programs"]
    for result in written["results"]:
        phases = ("imports", "first_round", "training", "end")
        seconds = [result[phase]["median"] for phase in phases]
        assert min(seconds) > 0
        assert sum(seconds) == pytest.approx(result["whole"]["median"])
