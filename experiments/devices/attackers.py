"""Attacks and reducers: the accuracy of the benign clients.

    python experiments/devices/attackers.py --scale small
    pfljax prepare fashion_mnist; python experiments/devices/attackers.py --scale paper

FedAvg, Ditto and SuPerFed run with a fifth of the clients malicious. These are the same
clients in every run of a seed. There are three attacks:

    labels       random training labels: A1 of Li et al. (Ditto), ICML 2021,
                 https://arxiv.org/abs/2012.04221, section 4.1
    replacement  random labels, and the change times the cohort's size: A3 there, after
                 Bagdasaryan et al., AISTATS 2020, https://arxiv.org/abs/1807.00459
    sign flip    -5 times the change; from a fifth of the clients this reverses the mean

Three reducers are compared with the mean: the median by coordinate (Yin et al., ICML
2018, https://arxiv.org/abs/1803.01498); multi-Krum, the mean of the five changes
nearest to others (Blanchard et al., NeurIPS 2017); and changes that are clipped to
their median norm. Local training is shown as well, because no attack affects it.

Only benign clients are evaluated, each with its personal model (with FedAvg, the
server's). Numbers are means of the last three evaluations. Runs without an attack are
evaluated on the same clients. The table says if a method refuses a reducer. The papers
used other data, so their numbers are not compared.

The small scale has 20 clients of the digits, and the paper scale 100 of Fashion-MNIST.
"""

import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from pfljax.core import malicious
from pfljax.evaluation import fairness
from pfljax.report.style import GREY, GRID, PALETTE, new_figure, save_figure
from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment
from pfljax.runtime import errors
from pfljax.runtime.devices import use_compile_cache

HERE = Path(__file__).parent
# Studies lie in no package.
sys.path.append(str(HERE.parent))
from shared import best_round, script  # noqa: E402
from shared.published import std_over_seeds, with_std  # noqa: E402
from shared.seeds import finished  # noqa: E402

SHARE = 0.2  # of the clients, malicious
LAST = 3  # evaluations whose mean is told
SMALL = Experiment(
    "fedavg",
    partition="shards:per_client=4",
    clients=20,
    cohort=10,
    rounds=40,
    epochs=2,
    batch_size=10,
    lr=0.05,
    model="mlp:hidden=(32,)",
    validation=0.0,
    eval_every=4,
    devices=1,
)
PAPER: dict[str, Any] = {
    "dataset": "fashion_mnist",
    "clients": 100,
    "rounds": 200,
    "eval_every": 10,
}
METHODS = ("fedavg", "ditto", "superfed")
ALONE = "local"
ATTACKS: dict[str, dict[str, Any]] = {
    "none": {},
    "labels": {"noise": f"poison:attackers={SHARE}"},
    "replacement": {
        "noise": f"poison:attackers={SHARE}",
        "channel": (f"model_replacement:attackers={SHARE}",),
    },
    "sign flip": {"channel": (f"sign_flip:attackers={SHARE},scale=5",)},
}
REDUCERS = {
    "mean": (),
    "median": ("median",),
    "multi-Krum": ("krum:byzantine=3,chosen=5",),
    "norm clip": ("norm_clip",),
}


class Row(NamedTuple):
    """A method under an attack behind a reducer; lists are by seed, in percent."""

    method: str
    attack: str
    reducer: str
    mean: list[float]  # over benign clients
    std: list[float]  # over benign clients
    tenth: list[float]  # the percentile that a tenth of them lie below
    diverged: int = 0  # seeds in which a benign client's loss is not finite
    refused: str = ""  # why nothing ran


def settings_of(method: str, attack: str, reducer: str, base: Experiment) -> Experiment:
    """The run of a method so attacked and so guarded."""
    attacked = dict(ATTACKS[attack])
    return base.replace(algorithm=method, aggregation=REDUCERS[reducer], **attacked)


def benign(run: Result) -> np.ndarray:
    """Which clients are benign; without an attack, who would be under one, bool[C]."""
    if "malicious" in run.clients:
        return ~run.clients["malicious"]
    clients = run.clients["personal/test/accuracy"].shape[1]
    key = jax.random.key(run.experiment.seed)
    return ~np.asarray(malicious.draw(key, clients, SHARE))


def row_of(method: str, attack: str, reducer: str, runs: list[Result]) -> Row:
    """What benign clients of all seeds are left with."""
    spreads = [fairness.spread(by_client(run)) for run in runs]
    return Row(
        method=method,
        attack=attack,
        reducer=reducer,
        mean=[float(np.nanmean(by_client(run))) for run in runs],
        std=[spread["variance"] ** 0.5 for spread in spreads],
        tenth=[spread["p10"] for spread in spreads],
        diverged=sum(map(diverged, runs)),
    )


def by_client(run: Result) -> np.ndarray:
    """The accuracy of each benign client, percent, the mean of the last evaluations."""
    accuracy = run.clients["personal/test/accuracy"][-LAST:, benign(run)]
    return 100 * accuracy.mean(0)


def diverged(run: Result) -> bool:
    """Whether a benign client's loss ended as no number."""
    loss = run.clients["personal/test/loss"][-1, benign(run)]
    rows = run.clients["test_size"][benign(run)]
    return not np.isfinite(loss[rows > 0]).all()


def refusal(method: str, attack: str, reducer: str, error: Exception) -> Row:
    """The row of what the simulator refuses, with the reason."""
    why = str(error).splitlines()[0]
    return Row(method, attack, reducer, mean=[], std=[], tenth=[], refused=why)


def markdown(rows: list[Row]) -> str:
    """The table: a line a method and attack, a column a reducer."""
    by_name = {(row.method, row.attack, row.reducer): row for row in rows}
    seeds = max(len(row.mean) for row in rows)
    lines = [
        f"### Benign clients' accuracy, %, mean ± sample std over {seeds} seeds (std "
        "over clients)\n",
        f"| method | attack | {' | '.join(REDUCERS)} |",
        "|---|---" + "|---" * len(REDUCERS) + "|",
    ]
    for method, attack in dict.fromkeys((row.method, row.attack) for row in rows):
        texts = [cell(by_name.get((method, attack, name))) for name in REDUCERS]
        lines.append(f"| {method} | {attack} | {' | '.join(texts)} |")
    return "\n".join([*lines, "", combinations(rows)])


def cell(row: Row | None) -> str:
    """A row's place in the table; nothing where none was asked for."""
    if row is None:
        return ""
    if row.refused:
        return "refused"
    mean = float(np.mean(row.mean))
    text = with_std(mean, float(std_over_seeds(np.array(row.mean))), 1)
    text += f" ({np.mean(row.std):.1f})"
    return f"{text}, {row.diverged} diverged" if row.diverged else text


def combinations(rows: list[Row]) -> str:
    """How many methods run behind how many reducers, and why others do not."""
    guarded = [row for row in rows if row.method in METHODS and row.reducer != "mean"]
    asked = {(row.method, row.reducer) for row in guarded}
    refused = {(row.method, row.reducer): row.refused for row in guarded if row.refused}
    ran = len(asked) - len(refused)
    text = f"{ran} of {len(asked)} combinations of a method and a reducer run."
    reasons = [f"{' with '.join(pair)}: {why}" for pair, why in refused.items()]
    return "\n- ".join([text, *reasons])


def figure(rows: list[Row]) -> Any:
    """Benign accuracy by attack, a panel a method, a colour a reducer."""
    drawn, panels = new_figure(9.6, 3.4, len(METHODS), sharey=True)
    alone = [float(np.mean(row.mean)) for row in rows if row.method == ALONE]
    for axes, method in zip(panels, METHODS, strict=True):
        for number, (name, colour) in enumerate(zip(REDUCERS, PALETTE, strict=False)):
            ran = [row for row in rows if (row.method, row.reducer) == (method, name)]
            ran = [row for row in ran if not row.refused]
            # Side by side, around the attack's place.
            aside = 0.16 * (number - (len(REDUCERS) - 1) / 2)
            x = [list(ATTACKS).index(row.attack) + aside for row in ran]
            y = [np.mean(row.mean) for row in ran]
            spread = [float(std_over_seeds(np.array(row.mean))) for row in ran]
            bars = np.nan_to_num(spread)
            axes.errorbar(x, y, yerr=bars, fmt="o", color=colour, capsize=2, label=name)
        for value in alone:
            axes.axhline(value, color=GREY, linestyle="--", linewidth=1, label=ALONE)
        axes.set_xticks(range(len(ATTACKS)), ATTACKS, fontsize=8)
        axes.set(title=method, ylim=(0, 100), xlabel="attack")
        axes.grid(axis="y", **GRID)
    panels[0].set_ylabel("accuracy of benign clients (%)")
    panels[-1].legend(frameon=False, fontsize=8, loc="lower left")
    return drawn


def cells() -> list[tuple[str, str, str]]:
    """(method, attack, reducer) of all that is run."""
    crossed = [
        (method, attack, reducer)
        for method in METHODS
        for attack in ATTACKS
        for reducer in REDUCERS
    ]
    return [(ALONE, "none", "mean"), *crossed]


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Place = str(HERE),
) -> list[Row]:
    """Benign clients' accuracy by method, attack and reducer."""
    use_compile_cache()
    base = SMALL if scale == "small" else SMALL.replace(**PAPER)
    if rounds:
        base = base.replace(rounds=rounds)
    folder = Path(out or f"runs/attackers-{scale}" + (f"-{rounds}" if rounds else ""))
    rows = []
    for method, attack, reducer in cells():
        name = f"{method}-{attack}-{reducer}".lower().replace(" ", "-")
        experiment = settings_of(method, attack, reducer, base)
        try:
            runs = finished(experiment, seeds, folder / name)
        except ValueError as error:
            # Without a reducer there is nothing to refuse: it is a mistake.
            if errors.shows_traceback() or reducer == "mean":
                raise
            rows.append(refusal(method, attack, reducer, error))
            continue
        rows.append(row_of(method, attack, reducer, runs))
    text = markdown(rows)
    print(text)
    place = Path(results)
    best_round.write(place / "results" / f"attackers_{scale}", rows, text)
    (place / "figures").mkdir(parents=True, exist_ok=True)
    save_figure(figure(rows), place / "figures" / f"attackers_{scale}")
    return rows


if __name__ == "__main__":
    script.run(main)
