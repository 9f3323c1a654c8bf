"""Who takes part: each selection's published effect, beside uniform cohorts.

    python experiments/devices/selections.py --scale small

FedAvg on the digits, 40 clients of two classes each, cohorts of four, and rows of the
server (5 %), which cmab and favor need. Devices have the speeds 4, 2, 1, .5 and .1, so
many clients each; a client takes rows / speed seconds a round, and a round lasts as
long as its slowest member. In five panels:

    losses    power-of-choice asks for the largest losses; oort for utility
    classes   cmab balances the classes of a cohort; favor learns what raises accuracy
    devices   TiFL's tiers and oort against virtual seconds
    work      FedSAE's work by history, against 10 epochs that most cannot afford
    there     everybody in turn, by a coin, or as those of large labels are there

The paper scale has 100 clients of Fashion-MNIST, cohorts of ten, and 500 rounds.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).parent
# Studies lie in no package.
sys.path.append(str(HERE.parent))
from shared import best_round, script  # noqa: E402
from shared.published import decimals, std_over_seeds  # noqa: E402

from pfljax import engine, registry, selection  # noqa: E402
from pfljax.core.types import Batch, Task  # noqa: E402
from pfljax.data import Federation  # noqa: E402
from pfljax.report.style import BAND, GRID, PALETTE, new_figure, save_figure  # noqa: E402
from pfljax.runs.settings import Experiment  # noqa: E402
from pfljax.runtime.devices import use_compile_cache  # noqa: E402
from pfljax.simulate import components, participants  # noqa: E402
from pfljax.simulate.federation import build_federation  # noqa: E402

SPEEDS = (4.0, 2.0, 1.0, 0.5, 0.1)
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
    devices=1,
)
PAPER: dict[str, Any] = {
    "dataset": "fashion_mnist",
    "clients": 100,
    "cohort": 10,
    "rounds": 500,
}
WORK = 10  # epochs, where most cannot afford all
PANELS = {
    "losses": ("uniform", "power_of_choice", "oort"),
    "classes": ("uniform", "cmab", "favor"),
    "devices": ("uniform", "tifl", "tifl:policy=fast", "oort"),
    "work": ("fedsae:rule=fixed", "fedsae", "fedsae:rule=fassa"),
    "there": (
        "uniform",
        "round_robin",
        "bernoulli",
        "availability:pattern=labels,beta=0.95",
    ),
}


class Course(NamedTuple):
    """A run by round."""

    accuracy: np.ndarray  # f[R], percent of all test rows, of the server's model
    seconds: np.ndarray  # f[R], virtual, up to the end of each round
    asked: np.ndarray  # f[R]
    reported: np.ndarray  # f[R]


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


def course(experiment: Experiment, choice: str) -> Course:
    """A run whose cohorts are chosen so."""
    federation, _ = build_federation(experiment)
    shape = components.shape_of(experiment, federation)
    task = components.make_task(experiment, shape)
    rows = np.asarray(federation.train.size)
    seconds = rows / np.resize(SPEEDS, len(rows))
    setting = components.make_setting(experiment, task, shape)
    select = chosen(experiment, choice, federation, task, seconds)
    setting = setting._replace(selection=select)
    program = engine.compile_rounds(setting, 1)
    judge = accuracy_on(task, federation)
    key = jax.random.key(experiment.seed)
    state = engine.init(setting, task, federation.num_clients, key)
    lines = []
    for _ in range(experiment.participation.rounds):
        state, metrics = program(state, federation.train, 1, public=federation.public)
        ids = np.asarray(state.cohort)
        # The last number is nobody's, who takes no time.
        lasted = np.append(seconds, 0)[ids].max()
        asked, reported = float(metrics["asked"][0]), float(metrics["reported"][0])
        lines.append((judge(state.server), lasted, asked, reported))
    accuracy, lasted, asked, reported = np.transpose(lines)
    return Course(accuracy, np.cumsum(lasted), asked, reported)


def chosen(
    experiment: Experiment,
    text: str,
    federation: Federation,
    task: Task,
    seconds: np.ndarray,
) -> selection.Selection:
    """The selection written so, told what it asks for."""
    choice = registry.parse(text)
    factory = selection.SELECTIONS[choice.name]
    of_run = registry.given(
        factory,
        num_clients=federation.num_clients,
        sizes=np.asarray(federation.train.size),
        **participants.labels_of(federation),
        seconds=seconds,
        rounds=experiment.participation.rounds,
        epochs=experiment.training.epochs,
        task=task,
        public_rows=components.rows_of(federation)["public_rows"],
    )
    return factory(experiment.participation.cohort, **of_run, **choice.kwargs)


def accuracy_on(task: Task, federation: Federation) -> Any:
    """A function of parameters: percent of all clients' test rows."""
    test = federation.test
    spans = zip(np.asarray(test.offset), np.asarray(test.size), strict=True)
    index = np.concatenate([start + np.arange(size) for start, size in spans])
    x, y = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], test.examples)

    @jax.jit
    def judged(params: Any) -> Any:
        return 100 * jnp.mean(task.predict(params, Batch.of_rows(x)).argmax(1) == y)

    return lambda params: float(judged(params))


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
        reported=[
            float(100 * each.reported.sum() / each.asked.sum()) for each in courses
        ],
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
            reached(row.to_goal),
            reached(row.seconds_to_goal),
            f"{np.mean(row.seconds):.0f}",
            f"{np.mean(row.reported):.0f}",
        ]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def reached(values: Sequence[float]) -> str:
    """The mean over seeds that reached the goal, and how many did not."""
    missing = int(np.isnan(values).sum())
    if missing == len(values):
        return "not"
    note = f" ({missing} not)" if missing else ""
    return f"{np.nanmean(values):.0f}{note}"


def figure(courses: dict[tuple[str, int], list[Course]]) -> Any:
    """Accuracy by round, or by virtual seconds, in a panel a question."""
    drawn, panels = new_figure(15.0, 3.4, len(PANELS), sharey=True)
    for axes, (panel, choices) in zip(panels, PANELS.items(), strict=True):
        for colour, choice in zip(PALETTE, choices, strict=False):
            epochs = WORK if panel == "work" else 0
            runs = courses[choice, epochs]
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
        axes.legend(frameon=False, fontsize=7, loc="lower right")
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
    results: script.Place = str(HERE),
) -> list[Row]:
    """Each selection's published effect, beside uniform cohorts."""
    use_compile_cache()
    base = SMALL if scale == "small" else SMALL.replace(**PAPER)
    base = base.replace(rounds=rounds or base.participation.rounds)
    courses: dict[tuple[str, int], list[Course]] = {}
    for panel, choices in PANELS.items():
        epochs = WORK if panel == "work" else 0
        job = base.replace(epochs=epochs) if epochs else base
        for choice in choices:
            if (choice, epochs) in courses:
                continue
            print(f"{panel}, {choice}", file=sys.stderr, flush=True)
            runs = [course(job.replace(seed=seed), choice) for seed in seeds]
            courses[choice, epochs] = runs
    rows = []
    for (choice, epochs), runs in courses.items():
        rows.append(row_of(choice, epochs or int(base.training.epochs or 0), runs))
    text = markdown(rows)
    print(text)
    place = Path(results)
    best_round.write(place / "results" / f"selections_{scale}", rows, text)
    (place / "figures").mkdir(parents=True, exist_ok=True)
    save_figure(figure(courses), place / "figures" / f"selections_{scale}")
    return rows


if __name__ == "__main__":
    script.run(main)
