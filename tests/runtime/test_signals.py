"""SIGTERM waits for the end of a block, once, and for nobody else's handler."""

import contextlib
import signal

import pytest

from pfljax.runtime import errors, signals


def terminate():
    """A block that gets SIGTERM."""
    with signals.deferred():
        assert not signals.terminated()
        signal.raise_signal(signal.SIGTERM)
        assert signals.terminated()
        # Another one is not deferred.
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        print("reached")


@pytest.mark.parametrize("name", ["a library", "pfljax"])
def test_sigterm_ends_the_program_after_the_block(name, capsys):
    program = errors.in_one_line(name) if name == "pfljax" else contextlib.nullcontext()
    with pytest.raises(SystemExit) as ended, program:
        terminate()
    assert ended.value.code == 75
    stopped = "pfljax: stopped; the same command resumes\n"
    assert capsys.readouterr() == ("reached\n", stopped)
    assert not signals.terminated()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_users_own_stays():
    came = []
    before = signal.signal(signal.SIGTERM, lambda *_: came.append(1))
    try:
        with signals.deferred():
            signal.raise_signal(signal.SIGTERM)
            assert not signals.terminated()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [1]
