"""What each channel costs beside none: seconds and bytes up of the same rounds.

A channel's rounds are timed in turn with those of the same method without one, so that
what else the machine does falls on both.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax import registry
from pfljax.bench import measure, posterior
from pfljax.bench.measure import spread
from pfljax.bench.posterior import Timed
from pfljax.bench.workloads import Ready, build
from pfljax.core import channel
from pfljax.core.communication import exchanges_of
from pfljax.runs.folder import write_json
from pfljax.runtime import devices, files
from pfljax.simulate import architectures

NAME = "channels"
WORKLOAD = "W1"
METHOD = "fedavg"
COLUMNS = ("channel", "% of a round (min to max)", "s a round", "MB up, a client")
NOTE = (
    f"{WORKLOAD}: rounds behind a channel are timed in turn with those without one. "
    "Percentages are what a channel adds, of pairs; none stands in the first line "
    "beside itself."
)
Result = dict[str, Any]


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
    """A Markdown table of what was measured; channels.json in `out`.

    Args:
      names: "channels", and those to time, such as "top_k:share=0.1"; no more than
        that word: all, as they are by default.
      rounds: of one timed call; None: the workload's own number.
      repeats: timed calls of each channel, each followed by one without.
      methods: one; none: FedAvg.
      peer: must be None.
      out: the folder to write to.
      scale: below 1 for a small copy of the workload.

    Raises:
      ValueError: for unknown channels, several methods, a peer, or no rounds or
        repeats.
    """
    first, *texts = names
    if first != NAME or peer is not None or len(methods) > 1:
        raise ValueError(
            f"{NAME} are timed alone, under one method and without a peer, as in "
            "pfljax bench channels sign top_k:share=0.1"
        )
    measure.check_counts(rounds=rounds, repeats=repeats)
    texts = texts or list(channel.CHANNELS)
    for text in texts:
        channel.make([registry.parse(text)])  # refuses it before anything runs
    folder = files.make_folder(Path(out))
    devices.prepare()
    ready = build(WORKLOAD, methods[0] if methods else METHOD, scale)
    rounds = rounds or ready.workload.rounds
    base = posterior.warm(ready, rounds)
    results: list[Result] = []
    for text in (None, *texts):
        result, base = compared(ready, base, text, rounds, repeats)
        results.append(result)
        print(" | ".join(_cells(result)), file=sys.stderr, flush=True)
        # After each channel: a bench that is stopped has written what it measured.
        written = {"jax": jax.__version__, "results": results}
        write_json(folder / "channels.json", written)
    return markdown(results)


def compared(
    ready: Ready, base: Timed, text: str | None, rounds: int, repeats: int
) -> tuple[Result, Timed]:
    """(the figures of a channel, the rounds without one, which go on)."""
    timed = posterior.warm(behind(ready, text), rounds)
    pairs = []
    for _ in range(repeats):
        timed, ours = posterior.sample(timed, rounds)
        base, theirs = posterior.sample(base, rounds)
        pairs.append((ours.seconds, theirs.seconds))
    workload = ready.workload
    traffic = architectures.traffic(
        timed.ready.setting, ready.task, workload.clients, workload.shape
    )
    result = {
        "channel": text or "none",
        "percent": spread([100 * (ours / theirs - 1) for ours, theirs in pairs]),
        "seconds_per_round": spread([ours / rounds for ours, _ in pairs]),
        "bytes_up": traffic.up,
    }
    return result, base


def behind(ready: Ready, text: str | None) -> Ready:
    """The workload, whose uploads go through this channel."""
    if text is None:
        return ready
    workload = ready.workload
    algorithm = ready.setting.algorithm
    exchanges = exchanges_of(algorithm, ready.task, workload.clients, workload.shape)
    through = channel.make([registry.parse(text)])
    assert through is not None
    through, algorithm = channel.fitted(through, algorithm, exchanges)
    setting = ready.setting._replace(channel=through, algorithm=algorithm)
    return ready._replace(setting=setting)


def markdown(results: list[Result]) -> str:
    """The table, and what stands below it."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, results)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", NOTE])


def _cells(result: Result) -> tuple[str, ...]:
    percent = result["percent"]
    return (
        result["channel"],
        f"{percent['median']:.1f} ({percent['min']:.1f} to {percent['max']:.1f})",
        f"{result['seconds_per_round']['median']:.3g}",
        f"{result['bytes_up'] / 1e6:.3g}",
    )
