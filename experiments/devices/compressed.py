"""Accuracy by true megabytes: FedAvg with its uploads compressed in several ways.

    python experiments/devices/compressed.py --scale small
    pfljax prepare fashion_mnist
    python experiments/devices/compressed.py --scale paper

    qsgd      Alistarh et al., NeurIPS 2017, https://arxiv.org/abs/1610.02132
    uniform   Suresh et al., ICML 2017, https://arxiv.org/abs/1611.00429
    sign      EF-signSGD: Karimireddy et al., ICML 2019,
              https://arxiv.org/abs/1901.09847
    top_k, random_k   Stich et al., NeurIPS 2018, https://arxiv.org/abs/1809.07599
    low_rank  PowerSGD: Vogels et al., NeurIPS 2019, https://arxiv.org/abs/1905.13727

Error feedback keeps the part that was left out at the client, and adds it to the next
change. `sign` and `top_k` run with and without it. Bytes count the bits that a code of
fixed length needs (`pfljax.channel`). Models are sent to clients whole, so the bytes of
both directions together cannot fall below half. Learning rates are not tuned for each
channel. The papers use other data, so their numbers are not compared.

The small scale has 20 clients of the digits, and the paper scale 100 of Fashion-MNIST.

This file is not called `compression.py`, because JAX imports a module of that name from
Python 3.14, and would find this file when a script of this folder runs.
"""

import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from pfljax.report.curves import make_curve, spent
from pfljax.report.style import GREY, GRID, PALETTE, new_figure, save_figure
from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache

HERE = Path(__file__).parent
# Studies lie in no package.
sys.path.append(str(HERE.parent))
from shared import best_round, script  # noqa: E402
from shared.published import std_over_seeds, with_std  # noqa: E402
from shared.seeds import finished  # noqa: E402

LAST = 3  # evaluations whose mean is told
SMALL = Experiment(
    "fedavg",
    partition="shards:per_client=4",
    clients=20,
    cohort=10,
    rounds=60,
    epochs=2,
    batch_size=10,
    lr=0.05,
    model="mlp:hidden=(64,)",
    validation=0.0,
    eval_every=2,
    devices=1,
)
PAPER: dict[str, Any] = {
    "dataset": "fashion_mnist",
    "clients": 100,
    "rounds": 300,
    "eval_every": 5,
}
TARGETS = {"small": 0.85, "paper": 0.75}
CHANNELS = {
    "whole": None,
    "qsgd": "qsgd:levels=16",
    "uniform": "uniform:levels=16",
    "sign": "sign",
    "sign, no feedback": "sign:feedback=False",
    "top_k": "top_k:share=0.02",
    "top_k, no feedback": "top_k:share=0.02,feedback=False",
    "random_k": "random_k:share=0.1",
    "low_rank": "low_rank:rank=2",
}
PLAIN = ", no feedback"  # of a name: dashed, in the colour of the channel with it


class Row(NamedTuple):
    """A channel; lists are by seed."""

    name: str
    channel: str
    rounds: int
    upload: float  # bytes of one
    accuracy: list[float]  # percent, the mean of the last evaluations
    to_target: list[float]  # rounds; NaN for a run that never reached it
    megabytes_up: list[float]  # sent by all clients until then, likewise
    megabytes: list[float]  # sent and received by all clients until then, likewise


def row_of(name: str, target: float, runs: list[Result]) -> Row:
    """What the runs of all seeds came to."""
    costs = [at_target(run, target) for run in runs]
    return Row(
        name=name,
        channel=CHANNELS[name] or "",
        rounds=runs[0].rounds,
        upload=upload_bytes(runs[0]),
        accuracy=[float(100 * make_curve(run).mean[-LAST:].mean()) for run in runs],
        to_target=[rounds for rounds, _, _ in costs],
        megabytes_up=[up for _, up, _ in costs],
        megabytes=[both for _, _, both in costs],
    )


def at_target(run: Result, target: float) -> tuple[float, float, float]:
    """Rounds, MB up, and MB up and down until the target; NaN where it is never."""
    reached = spent(make_curve(run), target)
    if not np.isfinite(reached["rounds"]):
        return np.nan, np.nan, np.nan
    (up,) = megabytes_up(run, np.array([reached["rounds"]]))
    return reached["rounds"], up, reached["bytes"] / 1e6


def megabytes_up(run: Result, rounds: np.ndarray) -> list[float]:
    """What all clients had sent by the end of these rounds."""
    sent = {line["round"]: line["bytes_up"] / 1e6 for line in run.metrics}
    return [sent[int(number)] for number in rounds]


def upload_bytes(run: Result) -> float:
    """The bytes of one upload: nobody is lost in these runs."""
    return run.metrics[0]["bytes_up"] / run.experiment.cohort


def markdown(rows: list[Row], target: float) -> str:
    """The table."""
    percent = f"{100 * target:g} %"
    whole = max(row.upload for row in rows)
    lines = [
        f"### {rows[0].rounds} rounds, {len(rows[0].accuracy)} seeds, mean ± sample "
        "std\n",
        f"| channel | bytes an upload | of whole, % | accuracy at the end, % | rounds "
        f"to {percent} | MB up to {percent} | MB up and down to {percent} |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        accuracy = np.array(row.accuracy)
        texts = [
            row.channel or row.name,
            f"{row.upload:.0f}",
            f"{100 * row.upload / whole:.1f}",
            with_std(accuracy.mean(), float(std_over_seeds(accuracy))),
            reached(row.to_target, 0),
            reached(row.megabytes_up, 3),
            reached(row.megabytes, 2),
        ]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def reached(values: list[float], digits: int) -> str:
    """The mean of the seeds that got there, and how many did not."""
    there = np.array([value for value in values if not np.isnan(value)])
    if not len(there):
        return "never"
    # Of one seed the std is NaN, which `with_std` leaves out.
    text = with_std(there.mean(), float(std_over_seeds(there)), digits)
    missing = len(values) - len(there)
    return f"{text} ({missing} never)" if missing else text


def figure(curves: dict[str, list[Result]], target: float) -> Any:
    """Accuracy by MB sent up, and by round; means over seeds."""
    drawn, panels = new_figure(9.6, 3.8, 2, sharey=True)
    with_colour = [name for name in curves if not name.endswith(PLAIN)]
    colours = dict(zip(with_colour, (*PALETTE, GREY), strict=False))
    for name, runs in curves.items():
        rounds = make_curve(runs[0]).rounds
        accuracy = 100 * np.mean([make_curve(run).mean for run in runs], axis=0)
        sent = np.mean([megabytes_up(run, rounds) for run in runs], axis=0)
        dash = "--" if name.endswith(PLAIN) else "-"
        colour = colours[name.removesuffix(PLAIN)]
        for axes, x in zip(panels, (sent, rounds), strict=True):
            axes.plot(x, accuracy, dash, color=colour, label=name, linewidth=1.4)
    panels[0].set(xscale="log", xlabel="sent up by all clients (MB)")
    panels[0].set_ylabel("test accuracy (%)")
    panels[1].set(xlabel="round", ylim=(0, 100))
    for axes in panels:
        axes.axhline(100 * target, color=GREY, linestyle=":", linewidth=1)
        axes.grid(axis="y", **GRID)
    panels[1].legend(frameon=False, fontsize=8, loc="lower right")
    return drawn


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Place = str(HERE),
) -> list[Row]:
    """Accuracy by true megabytes, by channel."""
    use_compile_cache()
    base = SMALL if scale == "small" else SMALL.replace(**PAPER)
    if rounds:
        base = base.replace(rounds=rounds)
    folder = Path(out or f"runs/compressed-{scale}" + (f"-{rounds}" if rounds else ""))
    target = TARGETS[scale]
    curves = {}
    rows = []
    for name, channel in CHANNELS.items():
        place = folder / name.replace(", ", "-").replace(" ", "-")
        runs = finished(base.replace(channel=channel), seeds, place)
        curves[name] = runs
        rows.append(row_of(name, target, runs))
    text = markdown(rows, target)
    print(text)
    place = Path(results)
    best_round.write(place / "results" / f"compressed_{scale}", rows, text)
    (place / "figures").mkdir(parents=True, exist_ok=True)
    save_figure(figure(curves, target), place / "figures" / f"compressed_{scale}")
    return rows


if __name__ == "__main__":
    script.run(main)
