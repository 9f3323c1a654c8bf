"""The progress line of a run, with its pace."""

import pytest

from pfljax.runtime import progress


@pytest.fixture
def clock(monkeypatch):
    """A list whose last item is the time."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[-1])
    return now


def test_compilation_is_no_part_of_the_pace(clock, capsys):
    with progress.progress(total=41, done=0, cohort=5) as show:
        clock.append(100.0)  # the first call compiles
        show(1, loss=1.0)
        clock.append(150.0)  # so does the first evaluation
        show(11, loss=1.0, accuracy=0.5)
        clock.append(152.0)
        show(21, loss=1.0, accuracy=0.5)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "round 11/41: loss 1.0000, accuracy 0.5000"
    assert second.endswith("accuracy 0.5000, 25 clients/s, 4 s left")


def test_a_line_begins_with_the_name_of_what_is_run(capsys):
    with progress.progress(4, 0, cohort=5, name="ditto, seed 3") as show:
        show(4, loss=1.0, accuracy=0.5)
    assert capsys.readouterr().err.startswith("ditto, seed 3, round 4/4: loss 1.0000")


def test_quiet_says_nothing(clock, capsys):
    with progress.progress(total=4, done=0, cohort=5, quiet=True) as show:
        show(4, loss=1.0, accuracy=0.5)
    assert capsys.readouterr().err == ""
