"""The screen: a row for each method, and what another seed would say."""

import numpy as np
import pytest

from pfljax.report import overview, write_comparison
from pfljax.report.frames import make_frame
from pfljax.report.lead import make_lead

METHODS = ("SuPerFed-MM", "ditto", "fedper", "local only", "FedAvg")


def comparison(against, p, needed=None, seeds=2, same=False):
    row = {"method": "best", "against": against, "p_holm": p, "with_best": True}
    return row | {"needed": needed, "seeds": seeds, "same_clients": same}


def answer(*comparisons):
    table = make_frame([{"accuracy": 0.9}]).rename(index={0: "best"})
    return " ".join(
        overview.answer(table, make_frame(comparisons), make_lead("accuracy"))
    )


@pytest.mark.usefixtures("undrawn")
def test_the_screen_is_small_and_sorted(comparison_folders, tmp_path):
    lines = write_comparison(comparison_folders, tmp_path).splitlines()
    assert len(lines) <= 28
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if line.startswith(METHODS)]
    assert [row[:11].strip() for row in rows[:5]] == [m[:11] for m in METHODS]
    means = []
    with_number = "clients.npz"
    for seed in range(3):
        folder = next(f for f in comparison_folders if f.name == f"ditto{seed}")
        with np.load(folder / with_number) as arrays:
            means.append(arrays["personal/test/accuracy"][-1].mean())
    assert f"{100 * np.mean(means):.2f}" in rows[1]
    assert f"{100 * np.std(means, ddof=1):.2f}" in rows[1]


def test_what_is_decided_and_what_is_not():
    text = answer(comparison("a", 0.0001), comparison("b", 0.2, 14.0))
    assert "best has the highest mean accuracy, 90.00 %." in text
    assert "better than a, and another seed would say the same (p < 0.001)" in text
    assert "With 2 seeds it is undecided against b: 14 seeds would decide it." in text
    assert "rough" not in text


def test_many_open_comparisons_are_one_sentence():
    text = answer(*(comparison(f"m{n}", 0.5, n) for n in range(8, 14)))
    assert "m8, m9, m10 and 3 others" in text
    assert "others: 13 seeds would decide all of them." in text
    text = answer(comparison("a", 0.5, 5.0), comparison("b", 0.5, float("nan")))
    assert "against a and b: over 100 seeds would decide all of them." in text


def test_one_seed_and_equal_clients_are_said():
    assert "is rough" in answer(comparison("a", 0.2, 9.0, seeds=1))
    assert "these clients only" in answer(comparison("a", 0.2, 9.0, same=True))
    assert "over 100 seeds would" in answer(comparison("a", 0.9, np.nan))
    assert "cannot be tested" in answer(comparison("a", np.nan, seeds=1))


def test_the_table_is_of_the_seeds_that_all_methods_have():
    rows = [
        {"method": "a", "seed": 0, "accuracy": 0.5},
        {"method": "a", "seed": 1, "accuracy": 0.9},
        {"method": "b", "seed": 0, "accuracy": 0.6},
    ]
    frame = make_frame(rows)
    assert overview.common_seeds(frame) == {0}
    assert "no run of seed 1;" in overview.describe_seeds(frame)[0]
    assert overview.common_seeds(make_frame(rows[1:])) == {0, 1}  # none in common
