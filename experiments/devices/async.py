"""Time to accuracy of synchronous, deadlined and asynchronous rounds, by devices.

FedAsync: Xie, Koyejo, Gupta, 2019, https://arxiv.org/abs/1903.03934.
FedBuff: Nguyen et al., AISTATS 2022, https://arxiv.org/abs/2106.06639.

    python experiments/devices/async.py --scale small
    pfljax prepare fashion_mnist; python experiments/devices/async.py --scale large

FedAvg trains ten clients at a time under three profiles of devices: equal devices with
some jitter, speed groups 4/2/1/0.5/0.1, and lognormal speeds. The deadline is the time
in which 70 % of the clients finish without jitter. All modes take the same number of
uploads, so that curves end after the same work. Seconds are virtual: they depend only
on bytes, local steps and the profile.

The small scale has 50 clients of the digits, and the large one 100 of Fashion-MNIST.
The papers use other data and simulators, so their numbers are not compared.
"""

import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from pfljax.core.components import parse
from pfljax.data import profiles
from pfljax.report.curves import make_curve, spent
from pfljax.report.style import GREY, GRID, PALETTE, new_figure, save_figure
from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache

HERE = Path(__file__).parent
# Studies lie in no package.
sys.path.append(str(HERE.parent))
from shared import best_round, script  # noqa: E402
from shared.published import std_over_seeds  # noqa: E402
from shared.seeds import finished  # noqa: E402

COHORT = 10
BUFFER = 5
SMALL = Experiment(
    "fedavg",
    partition="shards:per_client=4",
    clients=50,
    cohort=COHORT,
    rounds=80,
    epochs=2,
    batch_size=10,
    lr=0.05,
    model="mlp:hidden=(64,)",
    validation=0.0,
    eval_every=4,
    devices=1,
)
LARGE: dict[str, Any] = {
    "dataset": "fashion_mnist:every=10",
    "clients": 100,
    "rounds": 200,
}
TARGETS = {"small": 0.85, "large": 0.75}
STEPS = 6  # about: of the small scale's clients, for the deadlines
BYTES = 4 * (64 * 64 + 64 + 64 * 10 + 10)
IN_TIME = 0.7  # of the clients, under the deadline
PROFILES = {
    "alike": "equal:jitter=0.2",
    "speed groups": "speed_groups:jitter=0.2",
    "lognormal": "lognormal:sigma=1.0,jitter=0.2",
}
MODES = ("synchronous", "deadline", "FedAsync", "FedBuff")


class Row(NamedTuple):
    """A mode under a profile; lists are by seed."""

    profile: str
    mode: str
    rounds: int
    seconds: list[float]  # to the target; NaN for a run that never reached it
    megabytes: list[float]  # likewise
    accuracy: list[float]  # percent, at the end
    whole: list[float]  # seconds of the whole run
    staleness: list[float]  # mean over the rounds


def settings_of(mode: str, profile: str, base: Experiment) -> Experiment:
    """The run of a mode under a profile, of as many uploads as the others."""
    text = PROFILES[profile]
    timed = base.replace(profile=text)
    if mode == "deadline":
        return timed.replace(deadline=deadline_of(text, timed))
    if mode == "FedAsync":
        return timed.replace(mode="fedasync:alpha=0.6,staleness=polynomial,a=0.5")
    if mode == "FedBuff":
        more = COHORT // BUFFER
        return timed.replace(
            mode=f"fedbuff:buffer={BUFFER}",
            rounds=more * base.rounds,
            eval_every=more * base.eval_every,
        )
    return timed


def deadline_of(text: str, experiment: Experiment) -> float:
    """Seconds in which `IN_TIME` of the clients end a turn, without jitter."""
    clients = experiment.clients
    assert clients is not None
    devices = profiles.make(parse(text), clients)
    assert devices is not None
    seconds = profiles.expected_seconds(devices, STEPS, BYTES, BYTES)
    # A tenth for jitter: where all are alike most should be in time.
    return round(1.1 * float(np.quantile(seconds, IN_TIME)), 4)


def row_of(profile: str, mode: str, target: float, runs: list[Result]) -> Row:
    """What the runs of all seeds came to."""
    reached = [spent(make_curve(run), target) for run in runs]
    return Row(
        profile=profile,
        mode=mode,
        rounds=runs[0].rounds,
        seconds=[never_is_nan(one["seconds"]) for one in reached],
        megabytes=[never_is_nan(one["bytes"] / 1e6) for one in reached],
        accuracy=[float(100 * make_curve(run).mean[-1]) for run in runs],
        whole=[run.metrics[-1]["clock"] for run in runs],
        staleness=[mean_staleness(run) for run in runs],
    )


def never_is_nan(value: float) -> float:
    """NaN where a run never reached the target."""
    return value if np.isfinite(value) else float("nan")


def mean_staleness(run: Result) -> float:
    """Versions between what clients read and what they met; 0 of synchronous rounds."""
    return float(np.mean([line.get("train_staleness", 0.0) for line in run.metrics]))


def markdown(rows: list[Row], target: float) -> str:
    """The table."""
    percent = f"{100 * target:g} %"
    lines = [
        f"### {len(rows[0].seconds)} seeds, mean ± sample std\n",
        f"| devices | mode | seconds to {percent} | MB to {percent} | accuracy at the "
        "end, % | seconds of the run | staleness |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        texts = [
            row.profile,
            row.mode,
            spread(row.seconds, 2),
            spread(row.megabytes, 1),
            spread(row.accuracy, 2),
            spread(row.whole, 1),
            f"{np.mean(row.staleness):.2f}" if any(row.staleness) else "",
        ]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def spread(values: list[float], digits: int) -> str:
    """Mean ± std over the seeds; how many reached it, where some did not."""
    reached = [value for value in values if not np.isnan(value)]
    if not reached:
        return "never"
    text = f"{np.mean(reached):.{digits}f}"
    if len(reached) > 1:
        text += f" ± {float(std_over_seeds(np.asarray(reached))):.{digits}f}"
    missing = len(values) - len(reached)
    return f"{text} ({missing} never)" if missing else text


def figure(curves: dict[tuple[str, str], list[Result]], target: float) -> Any:
    """Accuracy by virtual seconds, a panel a profile; thin lines are seeds."""
    drawn, panels = new_figure(9.6, 3.2, len(PROFILES), sharey=True)
    for axes, profile in zip(panels, PROFILES, strict=True):
        for mode, colour in zip(MODES, PALETTE, strict=False):
            runs = curves[profile, mode]
            x = [make_curve(run).seconds for run in runs]
            y = [100 * make_curve(run).mean for run in runs]
            for seconds, accuracy in zip(x, y, strict=True):
                axes.plot(seconds, accuracy, color=colour, linewidth=0.5, alpha=0.5)
            axes.plot(np.mean(x, 0), np.mean(y, 0), color=colour, label=mode)
        axes.axhline(100 * target, color=GREY, linestyle=":", linewidth=1)
        axes.set(xscale="log", xlabel="virtual seconds", title=profile)
        axes.grid(axis="y", **GRID)
    panels[0].set_ylabel("test accuracy (%)")
    panels[-1].legend(frameon=False, fontsize=8, loc="lower right")
    return drawn


def main(
    scale: Literal["small", "large"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Place = str(HERE),
) -> list[Row]:
    """Time to accuracy by mode and devices."""
    use_compile_cache()
    base = SMALL if scale == "small" else SMALL.replace(**LARGE)
    if rounds:
        base = base.replace(rounds=rounds, eval_every=min(rounds, 4))
    folder = Path(out or f"runs/async-{scale}" + (f"-{rounds}" if rounds else ""))
    target = TARGETS[scale]
    curves = {}
    rows = []
    for profile in PROFILES:
        for mode in MODES:
            name = f"{profile}-{mode}".lower().replace(" ", "-")
            experiment = settings_of(mode, profile, base)
            runs = finished(experiment, seeds, folder / name)
            curves[profile, mode] = runs
            rows.append(row_of(profile, mode, target, runs))
    text = markdown(rows, target)
    print(text)
    place = Path(results)
    best_round.write(place / "results" / f"async_{scale}", rows, text)
    (place / "figures").mkdir(parents=True, exist_ok=True)
    save_figure(figure(curves, target), place / "figures" / f"async_{scale}")
    return rows


if __name__ == "__main__":
    script.run(main)
