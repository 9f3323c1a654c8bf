"""What Orbax and TensorStore say of an error that is raised as well is not heard."""

import logging
import sys
import types

import pytest

from pfljax.runs import quiet


@pytest.fixture
def heard(monkeypatch):
    """What comes through to the hooks that were there before."""
    said = []
    monkeypatch.setattr(
        sys, "excepthook", lambda kind, error, trace: said.append(error)
    )
    monkeypatch.setattr(
        sys, "unraisablehook", lambda unraisable: said.append(unraisable.exc_value)
    )
    quiet.quiet_ends.__wrapped__()
    return said


@pytest.mark.parametrize("closed", quiet.CLOSED)
def test_a_thread_that_comes_back_too_late_is_not_heard(heard, closed):
    late = RuntimeError(closed)
    sys.excepthook(RuntimeError, late, None)
    sys.unraisablehook(types.SimpleNamespace(exc_value=late))
    assert heard == []


def test_other_errors_are_heard(heard):
    other = RuntimeError("Event loop is on fire")
    sys.excepthook(RuntimeError, other, None)
    sys.unraisablehook(types.SimpleNamespace(exc_value=other))
    assert heard == [other, other]


@pytest.mark.parametrize(
    ("place", "trace", "is_heard"),
    [
        ("/env/orbax/checkpoint/_src/futures/future.py", True, False),
        ("/env/orbax/checkpoint/_src/futures/future.py", False, True),
        ("/env/mine/program.py", True, True),
    ],
)
def test_a_trace_of_orbax_is_not_logged(place, trace, is_heard):
    error = OSError("No space left on device")
    record = logging.LogRecord(
        name="absl",
        level=logging.ERROR,
        pathname=place,
        lineno=1,
        msg="a thread raised an exception",
        args=(),
        exc_info=(OSError, error, None) if trace else None,
    )
    assert bool(logging.getLogger("absl").filter(record)) is is_heard
