"""The published effect of each selection of clients, compared with uniform cohorts.

    python experiments/devices/selections.py --scale small
    pfljax prepare fashion_mnist; python experiments/devices/selections.py --scale paper

FedAvg runs on the digits with 40 clients of two classes each and cohorts of four. The
server holds 5 % of the examples, which cmab and favor need. The devices form five equal
groups with the speeds 4, 2, 1, 0.5 and 0.1, with jitter, and a round takes as long as
its slowest member. There are five panels:

    losses     power-of-choice chooses the largest losses; oort chooses by utility
    classes    cmab balances the classes of a cohort; favor learns what raises accuracy
    devices    TiFL's tiers, by measured and by expected seconds, and oort
    work       FedSAE's work by history, compared with 10 epochs, which most clients
               cannot finish
    available  clients in turn, by a coin, by label, by the hour, and by a trace in
               which each half of the clients is available for ten rounds

The paper scale has 100 clients of Fashion-MNIST, cohorts of ten, and 500 rounds.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

HERE = Path(__file__).parent
# Studies lie in no package.
sys.path.append(str(HERE.parent))
from shared import best_round, script  # noqa: E402
from shared.published import decimals, std_over_seeds  # noqa: E402
from shared.seeds import finished  # noqa: E402

from pfljax.report.curves import make_curve  # noqa: E402
from pfljax.report.style import BAND, GRID, PALETTE, new_figure, save_figure  # noqa: E402
from pfljax.runs.result import Result  # noqa: E402
from pfljax.runs.settings import Experiment  # noqa: E402
from pfljax.runtime.devices import use_compile_cache  # noqa: E402

GOAL = 80.0  # percent, that rounds and seconds are counted to
SMALL = Experiment(
    "fedavg",
    partition="shards:per_client=2",
    clients=40,
    cohort=4,
    rounds=100,
    epochs=5,
    model="mlp:hidden=(32,)",
    lr=0.05,
    public=0.05,
    validation=0.0,
    profile="speed_groups:jitter=0.3",
    eval_every=1,
    devices=1,
)
PAPER: dict[str, Any] = {
    "dataset": "fashion_mnist",
    "clients": 100,
    "cohort": 10,
    "rounds": 500,
}
WORK = 10  # epochs, where most cannot afford all
AWAY = 10  # rounds in which half of the clients is not there
TRACE = "availability:pattern=trace"  # and a file
PANELS = {
    "losses": ("uniform", "power_of_choice", "oort"),
    "classes": ("uniform", "cmab", "favor"),
    "devices": ("uniform", "tifl", "tifl:retier=0", "tifl:policy=fast", "oort"),
    "work": ("fedsae:rule=fixed", "fedsae", "fedsae:rule=fassa"),
    "available": (
        "uniform",
        "round_robin",
        "bernoulli",
        "availability:pattern=labels,beta=0.95",
        "availability:pattern=diurnal",
        TRACE,
    ),
}


class Course(NamedTuple):
    """A run by round."""

    accuracy: np.ndarray  # f[R], percent, of the server's model, mean over clients
    seconds: np.ndarray  # f[R], virtual, up to the end of each round
    reported: float  # percent of those asked


class Row(NamedTuple):
    """What a selection came to; lists are by seed, NaN where GOAL was not reached."""

    selection: str
    epochs: int
    rounds: int
    final: list[float]  # the mean of the last tenth of the rounds, percent
    to_goal: list[float]  # rounds
    seconds_to_goal: list[float]
    seconds: list[float]  # of a round
    reported: list[float]  # percent of those asked


def settings_of(choice: str, panel: str, base: Experiment, trace: Path) -> Experiment:
    """The run of a selection; `trace` is the file of who is there."""
    given = f"{TRACE},file={trace}" if choice == TRACE else choice
    experiment = base.replace(selection=given)
    return experiment.replace(epochs=WORK) if panel == "work" else experiment


def write_trace(trace: Path, clients: int) -> None:
    """Either half of the clients is there for `AWAY` rounds, then the other."""
    by_day = np.arange(clients) < clients // 2
    available = np.repeat([by_day, ~by_day], AWAY, axis=0)
    trace.parent.mkdir(parents=True, exist_ok=True)
    np.savez(trace, available=available)


def course_of(run: Result) -> Course:
    """What a run logged in its rounds."""
    curve = make_curve(run)
    last = run.metrics[-1]
    return Course(
        accuracy=100 * curve.mean,
        seconds=curve.seconds,
        # A model weighs the same down and up.
        reported=100 * last["bytes_up"] / last["bytes_down"],
    )


def row_of(choice: str, epochs: int, courses: Sequence[Course]) -> Row:
    """The figures of a selection's runs."""
    last = max(len(courses[0].accuracy) // 10, 1)
    reached = [first_at(each.accuracy) for each in courses]
    return Row(
        selection=choice,
        epochs=epochs,
        rounds=len(courses[0].accuracy),
        final=[float(each.accuracy[-last:].mean()) for each in courses],
        to_goal=[np.nan if at is None else at + 1.0 for at in reached],
        seconds_to_goal=[
            np.nan if at is None else float(each.seconds[at])
            for at, each in zip(reached, courses, strict=True)
        ],
        seconds=[float(each.seconds[-1] / len(each.seconds)) for each in courses],
        reported=[each.reported for each in courses],
    )


def first_at(accuracy: np.ndarray) -> int | None:
    """The first round, from 0, from which on the mean of five is `GOAL`; or None."""
    smooth = np.convolve(accuracy, np.ones(5) / 5, mode="valid")
    reached = np.flatnonzero(smooth >= GOAL)
    return int(reached[0]) if len(reached) else None


def markdown(rows: Sequence[Row]) -> str:
    """The table."""
    lines = [
        f"### {rows[0].rounds} rounds, {len(rows[0].final)} seeds\n",
        f"| selection | epochs | accuracy, % | rounds to {GOAL:g} % | seconds to "
        f"{GOAL:g} % | seconds a round | reported, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        spread = decimals(float(std_over_seeds(np.array(row.final))))
        texts = [
            row.selection,
            str(row.epochs),
            f"{np.mean(row.final):.2f} ± {spread}",
            reached(row.to_goal, 0),
            reached(row.seconds_to_goal, 1),
            f"{np.mean(row.seconds):.2f}",
            f"{np.mean(row.reported):.0f}",
        ]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def reached(values: Sequence[float], digits: int) -> str:
    """The mean over seeds that reached the goal, and how many did not."""
    missing = int(np.isnan(values).sum())
    if missing == len(values):
        return "not"
    note = f" ({missing} not)" if missing else ""
    return f"{np.nanmean(values):.{digits}f}{note}"


def figure(courses: dict[tuple[str, bool], list[Course]]) -> Any:
    """Accuracy by round, or by virtual seconds, in a panel a question."""
    drawn, panels = new_figure(16.0, 3.6, len(PANELS), sharey=True)
    for axes, (panel, choices) in zip(panels, PANELS.items(), strict=True):
        for colour, choice in zip(PALETTE, choices, strict=False):
            runs = courses[choice, panel == "work"]
            accuracy = np.array([smoothed(run.accuracy) for run in runs])
            x = np.arange(1, accuracy.shape[1] + 1)
            if panel == "devices":
                x = np.mean([run.seconds for run in runs], axis=0)
            mean = accuracy.mean(0)
            axes.plot(x, mean, color=colour, label=choice.replace(":", "\n  "))
            spread = std_over_seeds(accuracy) if len(runs) > 1 else 0 * mean
            axes.fill_between(x, mean - spread, mean + spread, color=colour, **BAND)
        axes.set_title(panel, fontsize=10)
        in_seconds = panel == "devices"
        axes.set(xlabel="virtual seconds" if in_seconds else "round", ylim=(0, 100))
        axes.set_xscale("log" if in_seconds else "linear")
        axes.grid(axis="y", **GRID)
        axes.legend(frameon=False, fontsize=6.5, loc="lower right")
    panels[0].set_ylabel("test accuracy (%), mean of five rounds")
    return drawn


def smoothed(accuracy: np.ndarray) -> np.ndarray:
    """The mean of each round and the four before, of fewer at first."""
    total = np.cumsum(accuracy)
    before = np.concatenate([np.zeros(5), total[:-5]])[: len(total)]
    return (total - before) / np.minimum(np.arange(len(total)) + 1, 5)


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Place = str(HERE),
) -> list[Row]:
    """Each selection's published effect, beside uniform cohorts."""
    use_compile_cache()
    base = SMALL if scale == "small" else SMALL.replace(**PAPER)
    base = base.replace(rounds=rounds or base.rounds)
    folder = Path(out or f"runs/selections-{scale}" + (f"-{rounds}" if rounds else ""))
    trace = folder / "trace.npz"
    write_trace(trace, int(base.clients or 0))
    courses: dict[tuple[str, bool], list[Course]] = {}
    rows = []
    for panel, choices in PANELS.items():
        for choice in choices:
            key = choice, panel == "work"
            if key in courses:
                continue
            experiment = settings_of(choice, panel, base, trace)
            place = folder / choice.replace(":", "-")
            courses[key] = list(map(course_of, finished(experiment, seeds, place)))
            epochs = int(experiment.epochs or 0)
            rows.append(row_of(choice, epochs, courses[key]))
    text = markdown(rows)
    print(text)
    to = Path(results)
    best_round.write(to / "results" / f"selections_{scale}", rows, text)
    (to / "figures").mkdir(parents=True, exist_ok=True)
    save_figure(figure(courses), to / "figures" / f"selections_{scale}")
    return rows


if __name__ == "__main__":
    script.run(main)
