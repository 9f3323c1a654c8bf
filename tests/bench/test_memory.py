"""The memory of a round: what grows with the population, and what must not."""

import json

import pytest

import tiny
from pfljax.bench import memory, peak, run
from pfljax.bench.catalogue import WORKLOADS

TINY = WORKLOADS["W1"]._replace(
    model="mlp:hidden=(8,)",
    shape=(64,),
    clients=20,
    rows=4,
    cohort=5,
    batch_size=4,
    epochs=1,
)
MANY = 5_000


@pytest.mark.parametrize("method", ["fedavg", "fedper"])
def test_a_round_copies_neither_the_rows_nor_the_clients_states(method):
    few, many = (
        peak.compiled_bytes(
            peak.compile_round(peak.Case(TINY._replace(clients=clients), method))
        )
        for clients in (TINY.clients, MANY)
    )
    added = MANY - TINY.clients
    assert many["rows"] - few["rows"] == added * 4 * (64 + 1) * 4
    # A head of 8 x 10 weights and 10 biases.
    head = {"fedavg": 0, "fedper": 4 * 90}[method]
    assert many["clients"] == MANY * head
    assert many["arguments"] >= many["rows"] + many["clients"] + many["server"]
    # The draw of a cohort holds a few numbers of 4 bytes a client.
    assert many["temporaries"] - few["temporaries"] <= 40 * added
    # Participations too are written in place.
    assert many["aliased"] >= many["clients"] + many["server"] + 4 * MANY


@pytest.mark.parametrize(
    "more", [["W1"], ["--against", "echo"], ["--rounds", "2"], ["startup"]]
)
def test_it_is_measured_alone(more, tmp_path):
    code, _, errors = tiny.main("bench", "memory", *more, "--out", tmp_path / "out")
    assert code == 2
    assert errors.startswith("pfljax: memory is measured alone, of one round")
    assert not (tmp_path / "out").exists()


def test_every_case_is_asked_once():
    asked = memory.cases(memory.METHODS)
    assert len(set(asked)) == len(asked) == 2 * 2 * 2 * 2 + 1
    assert {case.workload.clients for case in asked} == {100, 1000, 10_000}
    assert [case.workload.model for case in asked if not case.measured] == ["resnet18"]


@pytest.mark.parametrize(("copied", "says"), [(0, "neither is"), (1, "some of it is")])
def test_what_grows_with_the_population_is_told(copied, says):
    def result(population):
        rows = 1_000_000 * population
        sizes = dict.fromkeys(memory.BYTES, 0)
        sizes |= {"rows": rows, "temporaries": 500 + copied * rows, "peak": None}
        case = {"model": "twonn", "method": "fedavg", "cohort": 10}
        return {**case, "population": population, **sizes}

    text = memory.markdown([result(100), result(10_000)])
    assert f"grow by up to 9,900.0 MB, temporaries by up to {9900 * copied:,}.0" in text
    assert f": {says} copied." in text
    assert "| twonn | fedavg | 10,000 | 10 | 10,000.0 | 0.0 |" in text
    assert text.count(" - |") == 2


@pytest.mark.slow
def test_a_process_grows_by_what_a_round_holds(tmp_path, monkeypatch):
    rows = TINY._replace(rows=1000)
    monkeypatch.setattr(memory, "SMALL", (rows,))
    monkeypatch.setattr(memory, "POPULATIONS", (20, 400))
    monkeypatch.setattr(memory, "COHORTS", (5,))
    monkeypatch.setattr(memory, "LARGE", TINY)
    text = run(["memory"], methods=["fedper"], out=tmp_path)
    few, many, large = json.loads((tmp_path / "memory.json").read_text())["results"]
    assert many["rows"] == 400 * 1000 * 65 * 4
    for found in (few, many):
        assert found["peak"] > found["rows"] + found["clients"]
    # 104 MB of rows: a copy of them would be twice as many.
    assert many["peak"] < 1.5 * many["arguments"]
    assert large["peak"] is None
    assert "neither is copied" in text


@pytest.mark.slow
def test_a_case_that_fails_is_told(tmp_path):
    expected = "failed: .*unknown algorithm 'fedsgd'"
    with pytest.raises(ValueError, match=expected):
        run(["memory"], methods=["fedsgd"], out=tmp_path)
