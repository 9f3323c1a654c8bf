"""A peer of the bench: what its command must print."""

import os
import sys

import pytest

from pfljax.bench import peer
from pfljax.runtime import devices


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit('no torch here')", "ended with 1: no torch here"),
        ("print('5 steps')", "printed no result; expected a line"),
        ("print('JSON {}')", "printed JSON {}; expected a line"),
        ("print('JSON [')", "printed JSON"),
    ],
)
def test_a_peer_that_fails_is_one_error(code, message):
    with pytest.raises(ValueError, match=message):
        peer.ask(f'{sys.executable} -c "{code}"', "W1", "fedavg")


def test_a_peer_that_does_not_exist():
    with pytest.raises(ValueError, match=r"'no-such-simulator' cannot be run .*; give"):
        peer.ask("no-such-simulator --workload {workload}", "W1", "fedavg")


def test_a_peer_gets_the_flags_that_a_user_gave(monkeypatch):
    # Another version of XLA would end at one that it does not know.
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    devices.prepare()
    assert "region_analysis" in os.environ["XLA_FLAGS"]
    code = "import os; print('JSON', os.environ['XLA_FLAGS'])"
    with pytest.raises(ValueError, match="JSON --xla_cpu_enable_fast_math=false;"):
        peer.ask(f'{sys.executable} -c "{code}"', "W1", "fedavg")


@pytest.mark.parametrize("rate", ["0", "-1", "NaN", "Infinity"])
def test_a_peer_without_a_rate(rate):
    command = f"""echo 'JSON {{"client_steps_per_s": {rate}}}'"""
    with pytest.raises(ValueError, match=r"'echo' reported .*; expected a finite numb"):
        peer.ask(command, "W1", "fedavg")
