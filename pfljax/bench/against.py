"""A peer: a command that runs a workload in another simulator and prints its rate."""

import json
import shlex
import subprocess

MARK = "JSON "
WORKLOAD, METHOD = "{workload}", "{algorithm}"  # stand in a command for the names


def check(command: str, cases: list[tuple[str, str]]) -> None:
    """Raises a ValueError for a command that cannot fit the (workload, method)s."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"--against {command!r} cannot be read: {error}") from None
    if not words:
        raise ValueError("--against is empty; give the command of a peer")
    for place, names in zip((WORKLOAD, METHOD), zip(*cases, strict=True), strict=True):
        found = dict.fromkeys(names)
        if len(found) > 1 and place not in command:
            raise ValueError(
                f"--against is one command for {', '.join(found)}; write {place} where "
                "it takes the name, or choose one of them"
            )


def ask(command: str, workload: str, method: str) -> float:
    """Local steps per second in the peer's last JSON line, `client_steps_per_s`.

    Raises:
      ValueError: for a command that fails or prints no such line.
    """
    filled = command.replace(WORKLOAD, workload).replace(METHOD, method)
    words = shlex.split(filled)
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        raise ValueError(f"the peer {words[0]!r} cannot be run: {error}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"the peer {words[0]!r} ended with {done.returncode}: {last}")
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    try:
        return float(json.loads(lines[-1][len(MARK) :])["client_steps_per_s"])
    except (IndexError, KeyError, TypeError, ValueError):
        told = lines[-1] if lines else "nothing of the kind"
        raise ValueError(
            f"the peer {words[0]!r} printed {told}; expected a line "
            'JSON {"client_steps_per_s": ...}'
        ) from None
