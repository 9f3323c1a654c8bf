"""Reports of virtual time: what it took, accuracy by seconds, and a timeline."""

import json

import numpy as np
import pytest

from pfljax.report import read_run, spent, timeline, write_comparison
from pfljax.report.comparison import comparison_curves
from pfljax.report.groups import group_runs
from pfljax.report.key_figures import key_figures
from pfljax.report.page_run import run_page
from pfljax.report.targets import target_table

SECONDS = 0.5  # of a round


def timed(folder):
    """The run of a folder, whose log is given a clock."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        start = SECONDS * (line["round"] - 1)
        line |= {"seconds": SECONDS, "clock": start + SECONDS}
        if line["round"] <= 3:
            line["turns"] = [
                [4, start, start + 0.2, True],
                [7, start, start + 0.5, False],
            ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_run(folder)


@pytest.fixture
def run(make_run, tmp_path):
    return timed(make_run(tmp_path / "timed", "superfed"))


@pytest.fixture
def plain(make_run, tmp_path):
    return read_run(make_run(tmp_path / "plain", "ditto"))


def test_spent_is_read_from_the_log(run, plain):
    rounds = np.array([4, 40])
    np.testing.assert_allclose(spent.at(run, rounds, "seconds"), [2, 20])
    np.testing.assert_allclose(spent.at(run, rounds, "bytes"), [0.416, 4.16])
    np.testing.assert_array_equal(spent.at(run, rounds, "round"), rounds)
    assert np.isnan(spent.at(plain, rounds, "seconds")).all()
    assert spent.has_clock(run)
    assert not spent.has_clock(plain)


def test_accuracy_is_drawn_over_seconds(run, plain):
    (axes,) = timeline.accuracy_by_seconds(run).axes
    line = axes.lines[0]
    np.testing.assert_allclose(line.get_xdata(), SECONDS * run.per_client["round"])
    mean = 100 * run.per_client["personal/test/accuracy"].mean(1)
    np.testing.assert_allclose(line.get_ydata(), mean, rtol=1e-5)
    assert timeline.accuracy_by_seconds(plain) is None


def test_the_timeline_has_a_bar_a_turn(run, plain):
    (axes,) = timeline.timeline(run).axes
    bars = sorted((bar.get_x(), bar.get_width()) for bar in axes.patches)
    expected = sorted((SECONDS * r, w) for r in range(3) for w in (0.2, 0.5))
    np.testing.assert_allclose(bars, expected)
    colours = {bar.get_width() > 0.3: bar.get_facecolor() for bar in axes.patches}
    assert colours[True] != colours[False]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["4", "7"]
    assert timeline.timeline(plain) is None


def test_curves_over_seconds(run):
    (axes,) = comparison_curves([run], "seconds").axes
    np.testing.assert_allclose(
        axes.lines[0].get_xdata(), SECONDS * run.per_client["round"]
    )
    assert axes.get_xlabel() == "virtual seconds"


def test_pages_tell_of_seconds_where_there_are_some(run, plain):
    for judged, told in ((run, True), (plain, False)):
        table = target_table(group_runs([judged]), [0.3])
        page = run_page(judged, [table], [])
        assert ("Virtual seconds" in page) == told


@pytest.mark.slow
def test_a_comparison_has_seconds_where_all_runs_have(run, plain, tmp_path):
    text = write_comparison([run.folder], tmp_path / "one")
    assert "Virtual seconds" in text
    assert (tmp_path / "one/figures/curves_by_seconds.png").exists()
    assert (tmp_path / "one/comparison_target.csv").exists()
    write_comparison([run.folder, plain.folder], tmp_path / "two")
    assert not (tmp_path / "two/figures/curves_by_seconds.png").exists()


def test_an_asynchronous_run_tells_how_late_uploads_came(run, plain):
    late = run._replace(rounds=[{"train_staleness": v} for v in (0.0, 4.0, 2.0)])
    (card,) = [card for card in key_figures(late) if card.title == "Staleness"]
    assert card.value == "2.00"
    assert card.note.endswith("mean over rounds; 4.00 in one at most")
    for other in (run, plain):
        assert "Staleness" not in [card.title for card in key_figures(other)]


def test_cards_of_virtual_time_and_of_gamma(run, plain):
    titles = [card.title for card in key_figures(plain)]
    assert not {"Virtual time", "Inexactness gamma"} & set(titles)
    rounds = [{"train_gamma": g, "clock": c} for g, c in ((0.5, 1), (0.25, 12.5))]
    cards = {c.title: c for c in key_figures(run._replace(rounds=rounds))}
    assert cards["Virtual time"].value == "12.5 s"
    assert cards["Inexactness gamma"].value == "0.375"
    assert cards["Inexactness gamma"].note.endswith("0.25 in the last")
