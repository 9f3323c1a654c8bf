"""What a run costs beside the bare engine: where its seconds go."""

import pytest

from pfljax.bench import public


def test_parts_of_a_run_add_up():
    times = [
        ("round", 4.0), ("judges", 6.0), ("judged", 6.5), ("round", 7.0),
        ("judges", 9.0), ("judged", 9.75), ("round", 10.0),
    ]  # fmt: skip
    reached = [{"name": name, "time": time} for name, time in times]
    parts = public.parts(reached, calls=[1.0, 1.5, 2.0], started=1.0, ended=10.5)
    assert parts == public.Public(
        start=2.0, rounds=4.5, evaluations=1.25, rest=1.25, end=0.5
    )
    assert sum(parts) == 9.5


@pytest.mark.slow
def test_clients_beyond_those_of_w1_share_their_rows(monkeypatch):
    few = public.experiment(2).replace(model="logistic", epochs=1)
    monkeypatch.setattr(public, "experiment", lambda rounds: few)
    [result] = public.compare(rounds=2, repeats=1, clients=(150,))
    assert result["clients"] == 150
    text = public.table([result])
    assert "| 150 |" in text
    assert min(*result["bare"][0], *result["public"][0]) > 0


def test_the_table_tells_what_is_beyond_the_bare_engine():
    result = {
        "clients": 100, "rounds": 20,
        "bare": [public.Bare(0.5, 9.5, 2.0)] * 3,
        "public": [public.Public(1.0, 10.5, 2.0, 0.25, end) for end in (0.25, 0.25, 1)],
    }  # fmt: skip
    line = public.table([result]).splitlines()[2]
    assert line.endswith("| +16.7% (+16.7% to +22.9%) |")
    assert line.startswith("| 100 | 0.50 | 9.50 | 2.00 | 1.00 | 10.50 |")
