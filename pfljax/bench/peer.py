"""A peer is a command that runs a workload in another simulator and prints its rate."""

import json
import math
import shlex
import subprocess

from pfljax.runtime import devices

MARK = "JSON "
# Placeholders in a command.
WORKLOAD = "{workload}"
METHOD = "{algorithm}"


def check(command: str, cases: list[tuple[str, str]]) -> None:
    """Raises a ValueError if the command does not fit the (workload, method) pairs."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"--against {command!r} cannot be read: {error}") from None
    if not words:
        raise ValueError("--against is empty; give the command of a peer")
    _check_placeholder(command, WORKLOAD, [workload for workload, _ in cases])
    _check_placeholder(command, METHOD, [method for _, method in cases])


def _check_placeholder(command: str, placeholder: str, names: list[str]) -> None:
    """Raises a ValueError if the command would be the same for different names."""
    # A dict and not a set: the message keeps their order.
    different = dict.fromkeys(names)
    if len(different) > 1 and placeholder not in command:
        raise ValueError(
            f"--against is one command for {', '.join(different)}; write "
            f"{placeholder} where it takes the name, or choose one of them"
        )


def ask(command: str, workload: str, method: str) -> float:
    """Local steps per second in the peer's last JSON line, `client_steps_per_s`.

    Raises:
      ValueError: the command fails, or prints no such line or no rate.
    """
    filled = command.replace(WORKLOAD, workload).replace(METHOD, method)
    words = shlex.split(filled)
    try:
        process = subprocess.run(
            words, env=devices.clean_environment(), capture_output=True, text=True
        )
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"the peer {words[0]!r} cannot be run ({reason}); give another --against"
        ) from None
    if process.returncode:
        messages = process.stderr.strip().splitlines() or ["no message"]
        raise ValueError(
            f"the peer {words[0]!r} ended with {process.returncode}: {messages[-1]}"
        )
    lines = [line for line in process.stdout.splitlines() if line.startswith(MARK)]
    try:
        figures = json.loads(lines[-1][len(MARK) :])
        rate = float(figures["client_steps_per_s"])
    except (IndexError, KeyError, TypeError, ValueError):
        printed = lines[-1] if lines else "no result"
        raise ValueError(
            f"the peer {words[0]!r} printed {printed}; expected a line "
            'JSON {"client_steps_per_s": ...}'
        ) from None
    if not 0 < rate < math.inf:
        raise ValueError(
            f"the peer {words[0]!r} reported {rate} steps a second; expected a finite "
            "number > 0"
        )
    return rate
