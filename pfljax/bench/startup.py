"""What a run costs before and after its rounds: a command in a process of its own.

Cold, with an empty cache of compiled programs, and warm, with what the cold one left.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax.bench.measure import check_counts, spread
from pfljax.runs.folder import write_json
from pfljax.runtime import devices, files, milestones

NAME = "startup"
METHODS = ("superfed",)
ROUNDS = 20
CACHES = ("cold", "warm")
SECONDS = {
    "imports": "imports",
    "first_round": "from there to the first round",
    "training": "first to last round",
    "end": "after the last round",
    "whole": "whole",
    "cpu": "CPU s",
}
COLUMNS = ("method", "cache", *SECONDS.values(), "programs", "of these fetched")
NOTE = (
    "Seconds are medians (min to max); CPU s are those of all cores. Imports: from the "
    "start of Python until the run begins. Programs: compiled, or fetched from the "
    "cache."
)
RECOMPILED = (
    "PYTHONDONTWRITEBYTECODE is set: unless they were compiled at installation, Python "
    "compiles all modules at each start, which doubles the seconds of imports."
)


def run(
    names: Sequence[str],
    *,
    rounds: int | None = None,
    repeats: int = 3,
    methods: Sequence[str] = (),
    peer: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = 1.0,
    options: Sequence[str] = (),
) -> str:
    """A Markdown table of what was measured; startup.json in `out`.

    Args:
      names: "startup" alone.
      rounds: of each run; None: 20.
      repeats: cold runs of each method, each followed by a warm one.
      methods: none: SuPerFed.
      peer: must be None.
      out: the folder to write to.
      scale: not read: `options` say how large the run is.
      options: more of `pfljax run`, for tests.

    Raises:
      ValueError: for other names, a peer, no rounds or repeats, or a run that fails.
    """
    if list(names) != [NAME] or peer is not None:
        raise ValueError(
            f"{NAME} is timed alone, without other workloads or a peer; give it a "
            "command of its own"
        )
    check_counts(rounds=rounds, repeats=repeats)
    flags = ["--rounds", str(rounds or ROUNDS), *options]
    results = []
    for method in methods or METHODS:
        samples = _samples(["--algorithm", method, *flags], repeats)
        for cache in CACHES:
            figures = _figures(samples[cache])
            results.append({"method": method, "cache": cache, **figures})
    folder = files.make_folder(Path(out))
    written = {"machine": _machine(), "results": results}
    write_json(folder / "startup.json", written)
    return markdown(results)


def _samples(flags: list[str], repeats: int) -> dict[str, list[dict[str, float]]]:
    """What each run took, by the cache that it met."""
    samples: dict[str, list[dict[str, float]]] = {cache: [] for cache in CACHES}
    with tempfile.TemporaryDirectory() as base:
        for i in range(repeats):
            for cache in CACHES:
                out = Path(base) / f"{cache}-{i}"
                samples[cache].append(_sample(flags, out, Path(base) / f"xla-{i}"))
                print(f"{cache}: {_line(samples[cache][-1])}", file=sys.stderr)
    return samples


def _sample(flags: list[str], out: Path, cache: Path) -> dict[str, float]:
    """What one run took, its folder and the cache of its programs being these."""
    file = out.with_suffix(".jsonl")
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        milestones.FILE: str(file),
    }
    command = [sys.executable, "-m", "pfljax", "run", *flags, "--out", str(out)]
    before = os.times()
    started = time.time()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    ended = time.time()
    after = os.times()
    if done.returncode:
        *_, reason = done.stderr.splitlines() or [f"exit code {done.returncode}"]
        raise ValueError(f"`pfljax run {' '.join(flags)}` failed: {reason}")
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return {**between(milestones.read(file), started, ended), "cpu": cpu}


def between(reached: list[dict[str, Any]], started: float, ended: float) -> Any:
    """Seconds between the milestones of a run, and its programs."""
    when = {line["name"]: line["time"] for line in reached}
    rounds = [line["time"] for line in reached if line["name"] == "round"]
    return {
        "imports": when["begins"] - started,
        "first_round": rounds[0] - when["begins"],
        "training": rounds[-1] - rounds[0],
        "end": ended - rounds[-1],
        "whole": ended - started,
        "programs": reached[-1]["programs"],
        "fetched": reached[-1]["fetched"],
    }


def _figures(samples: list[dict[str, float]]) -> dict[str, Any]:
    seconds = {name: spread([taken[name] for taken in samples]) for name in SECONDS}
    counts = {name: samples[0][name] for name in ("programs", "fetched")}
    return seconds | counts


def _machine() -> dict[str, Any]:
    return {
        "cores": devices.cores(),
        "jax": jax.__version__,
        "keeps_bytecode": not sys.dont_write_bytecode,
    }


def _line(taken: dict[str, float]) -> str:
    seconds = ", ".join(f"{text} {taken[key]:.2f}" for key, text in SECONDS.items())
    return f"{seconds}; {taken['programs']} programs, {taken['fetched']} fetched"


def markdown(results: list[dict[str, Any]]) -> str:
    """The table, and what stands below it."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, results)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = [NOTE, RECOMPILED] if sys.dont_write_bytecode else [NOTE]
    return "\n".join([*lines, "", *notes])


def _cells(result: dict[str, Any]) -> tuple[str, ...]:
    seconds = []
    for name in SECONDS:
        times = result[name]
        seconds.append(
            f"{times['median']:.2f} ({times['min']:.2f} to {times['max']:.2f})"
        )
    counts = (str(result["programs"]), str(result["fetched"]))
    return result["method"], result["cache"], *seconds, *counts
