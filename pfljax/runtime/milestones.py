"""How far a command is, and when, for `pfljax bench startup`.

Where PFLJAX_MILESTONES names a file, a run writes a line to it at each milestone.
"""

import json
import os
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

FILE = "PFLJAX_MILESTONES"
COMPILED = "/jax/core/compile/backend_compile_duration"  # or fetched
FETCHED = "/jax/compilation_cache/cache_hits"


def reached(name: str) -> None:
    """Writes when this was, and the programs since the first milestone."""
    file = os.environ.get(FILE)
    if not file:
        return
    # By the clock that the process which started this one has, too.
    line = {"name": name, "time": time.time(), **_programs()}
    with open(file, "a") as log:
        log.write(f"{json.dumps(line)}\n")


def read(file: Path) -> list[dict[str, Any]]:
    """The milestones of a run, in order."""
    return [json.loads(line) for line in file.read_text().splitlines()]


@cache
def _programs() -> Counter[str]:
    """Programs from now on, and those of them that were fetched: they count on."""
    import jax

    counts = Counter(programs=0, fetched=0)

    def on_duration(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            counts["programs"] += 1

    def on_event(event: str, **_: str | int) -> None:
        if event == FETCHED:
            counts["fetched"] += 1

    jax.monitoring.register_event_duration_secs_listener(on_duration)
    jax.monitoring.register_event_listener(on_event)
    return counts
