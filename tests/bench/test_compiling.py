"""What each method costs to compile: the table, and what it holds."""

import json

import pytest

from pfljax.bench import compiling, run
from pfljax.runtime.compiling import Work


def test_seconds_of_a_run_are_those_of_its_parts():
    job = compiling.experiment(compiling.workloads(["twonn"])[0], "ditto")
    sample = {
        "start": [Work("trace", "init", 1.0), Work("compile", "init", 2.0)],
        "rounds": [Work("trace", "run", 3.0), Work("lower", "run", 4.0)],
        "evaluation": [Work("compile", "run", 5.0)],
    }
    result = compiling._result(job, [sample, sample, sample | {"rounds": []}])
    assert (result["method"], result["model"], result["programs"]) == (
        "ditto", "twonn", 2,
    )  # fmt: skip
    assert result["rounds_lower"] == {"median": 4.0, "min": 0.0, "max": 4.0}
    assert result["whole"] == {"median": 15.0, "min": 8.0, "max": 15.0}


@pytest.mark.parametrize(
    "more", [{"names": ["compile", "W1"]}, {"peer": "echo"}, {"rounds": 3}]
)
def test_it_is_timed_alone(more, tmp_path):
    with pytest.raises(ValueError, match="compile is timed alone, without other"):
        run(**{"names": ["compile"], "out": tmp_path} | more)


def test_methods_that_refuse_a_model_are_told_apart_from_those_that_take_it():
    """FedMD learns on the server's rows, which there are; FedMA takes no skips."""
    [images] = compiling.workloads(["resnet18"], 0.01)
    clients = compiling.federation(images)
    assert compiling.refused(compiling.experiment(images, "fedmd"), clients) == ""
    why = compiling.refused(compiling.experiment(images, "fedma"), clients)
    assert why.startswith("fedma")
    text = compiling.markdown([], [f"resnet18, fedma: {why}"])
    assert text.endswith(f"Not compiled: resnet18, fedma: {why}")


@pytest.mark.slow
def test_a_method_has_a_row_a_network(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling.jax.config, "update", lambda *_: None)
    text = compiling.run(
        ["compile"],
        repeats=1,
        methods=["fedavg"],
        networks=["twonn"],
        out=tmp_path,
    )
    assert text.count("| twonn | fedavg |") == 1
    [result] = json.loads((tmp_path / "compile.json").read_text())["results"]
    # Rounds, three of the first state, two of an evaluation.
    assert result["programs"] <= 8
    parts = ("start", "rounds", "evaluation")
    assert result["whole"]["median"] == pytest.approx(
        sum(result[part]["median"] for part in parts)
    )
    assert result["rounds_compile"]["median"] > 0
