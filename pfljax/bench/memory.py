"""The memory of a round by population and cohort: compiled bytes beside measured ones.

Each case has a process of its own, for the peak of a process never falls.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax.bench.catalogue import WORKLOADS, Workload
from pfljax.bench.peak import Case
from pfljax.bench.workloads import shrink
from pfljax.runs.folder import write_json
from pfljax.runtime import files

NAME = "memory"
POPULATIONS = (100, 10_000)
COHORTS = (10, 100)
METHODS = ("fedavg", "fedper")  # whose clients keep nothing, or a head
ROWS = 4  # of each client
SMALL = tuple(
    WORKLOADS[name]._replace(rows=ROWS, batch_size=ROWS, epochs=1)
    for name in ("W1", "W2")
)
# A thousand uploads of 45 MB, which as a stack would fill most machines.
LARGE = WORKLOADS["W10"]._replace(clients=1000, cohort=1000, rows=2, batch_size=2)
BYTES = {
    "rows": "rows",
    "clients": "client states",
    "server": "server",
    "arguments": "arguments",
    "temporaries": "temporaries",
    "aliased": "aliased",
    "peak": "peak RSS",
}
COLUMNS = ("model", "method", "clients", "cohort", *BYTES.values())
NOTE = (
    "MB of one device. Arguments: rows, states of clients and server, and what is "
    "counted. Temporaries: what the compiled round needs beside them. Aliased: "
    "arguments whose memory the new state takes. Peak RSS: by how much a process grew "
    "from before the rows were made to the end of a round, at its highest; - where "
    "the round was compiled alone, or the system does not say."
)
PROGRAM = "from pfljax.bench.peak import main; main()"


def run(
    names: Sequence[str],
    *,
    rounds: int | None = None,
    repeats: int = 3,
    methods: Sequence[str] = (),
    peer: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = 1.0,
) -> str:
    """A Markdown table of what was measured; memory.json in `out`.

    Args:
      names: "memory" alone.
      rounds: must be None: it is of one round.
      repeats: not read: bytes do not scatter as seconds do.
      methods: none: FedAvg and FedPer.
      peer: must be None.
      out: the folder to write to.
      scale: below 1 for fewer clients, for tests.

    Raises:
      ValueError: for other names, rounds, a peer, or a case that fails.
    """
    if list(names) != [NAME] or peer is not None or rounds is not None:
        raise ValueError(
            f"{NAME} is measured alone, of one round, without other workloads or a "
            "peer; give it a command of its own, without --rounds and --against"
        )
    folder = files.make_folder(Path(out))
    results = []
    for case in cases(methods or METHODS, scale):
        results.append(_described(case) | _asked(case))
        # Each at once: the whole table takes minutes.
        print(" | ".join(_cells(results[-1])), file=sys.stderr, flush=True)
    write_json(folder / "memory.json", {"jax": jax.__version__, "results": results})
    return markdown(results)


def cases(methods: Sequence[str], scale: float = 1.0) -> list[Case]:
    """What is asked: every model, method, population and cohort, and a large cohort."""
    workloads = [
        model._replace(clients=clients, cohort=cohort)
        for model in SMALL
        for clients in POPULATIONS
        for cohort in COHORTS
    ]
    asked = [
        Case(shrink(workload, scale), method)
        for method in methods
        for workload in workloads
    ]
    large = Case(shrink(LARGE, scale), "fedavg", measured=False)
    return [*asked, large]


def _asked(case: Case) -> dict[str, Any]:
    """The bytes of a case, by a process of its own."""
    argument = json.dumps([case.workload._asdict(), case.method, case.measured])
    command = [sys.executable, "-c", PROGRAM, argument]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        *_, reason = done.stderr.splitlines() or [f"exit code {done.returncode}"]
        raise ValueError(f"a round of {_name(case.workload)} failed: {reason}")
    *_, line = done.stdout.splitlines()
    return json.loads(line)


def _name(workload: Workload) -> str:
    return f"{workload.model} with {workload.clients} clients"


def _described(case: Case) -> dict[str, Any]:
    return {
        "model": case.workload.model,
        "method": case.method,
        "population": case.workload.clients,
        "cohort": case.workload.cohort,
    }


def markdown(results: list[dict[str, Any]]) -> str:
    """The table, and what stands below it."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, results)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", NOTE, *_growth(results)])


def _growth(results: list[dict[str, Any]]) -> list[str]:
    """By how much the bytes grow with the population, at the most, in a sentence."""
    by_case: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for result in results:
        case = result["model"], result["method"], result["cohort"]
        by_case.setdefault(case, []).append(result)
    pairs = [same for same in by_case.values() if len(same) > 1]
    if not pairs:
        return []
    # Populations ascend.
    held = max(_held(same[-1]) - _held(same[0]) for same in pairs)
    needed = max(same[-1]["temporaries"] - same[0]["temporaries"] for same in pairs)
    verdict = "neither is copied" if needed < held / 100 else "some of it is copied"
    return [
        f"From the fewest clients to the most, rows and client states grow by up to "
        f"{_megabytes(held)} MB, temporaries by up to {_megabytes(needed)} MB: "
        f"{verdict}."
    ]


def _held(result: dict[str, Any]) -> int:
    return result["rows"] + result["clients"]


def _cells(result: dict[str, Any]) -> tuple[str, ...]:
    counts = (f"{result['population']:,}", f"{result['cohort']:,}")
    sizes = [_megabytes(result[name]) for name in BYTES]
    return result["model"], result["method"], *counts, *sizes


def _megabytes(size: int | None) -> str:
    if size is None:
        return "-"
    return f"{size / 1e6:,.1f}"
