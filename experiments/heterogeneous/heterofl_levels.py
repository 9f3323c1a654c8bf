"""HeteroFL: the global model and each level, by the mix of levels (ICLR 2021).

    pfljax prepare cifar10
    python experiments/heterogeneous/heterofl_levels.py --scale small
    python experiments/heterogeneous/heterofl_levels.py --scale paper

Diao, Ding, Tarokh, https://arxiv.org/abs/2010.01264: the questions of its tables and of
its figures of interpolation. In a mix "a1-e3" a quarter of the clients have level a,
and the others have level e. The global model has the largest level of the mix. "global"
is evaluated on all test examples. For a level, the slices of its clients are evaluated
on their own examples, masked to their classes. The bytes of a level are those of its
slice, without the second exchange, which sends statistics.

The protocol is CIFAR-10 with 100 clients, of which 10 take part, five epochs in batches
of 10, and SGD at 0.1 with momentum 0.9 and decay 0.0005. Clients have equal shares of
all classes for 400 rounds, or two shards each for 800. It differs from the paper:
training and test examples are merged, and a sixth of each client's is its test set; the
rate falls by a factor in each round, to a hundredth as there. We could not read the
published numbers.

The small scale has every tenth image at 16 x 16 pixels, a quarter of the channels, 20
clients, two epochs and ten rounds at a constant rate.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
from tyro.conf import arg

from pfljax.core import tree
from pfljax.core.communication import shapes_of_model, trace_exchanges
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate import components, methods, training
from pfljax.simulate.shape import Shape

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from shared import best_round, script  # noqa: E402
from shared.published import decimals, std_over_seeds, with_std  # noqa: E402
from shared.swept import Sweep, sweep  # noqa: E402

ROUNDS = {"iid": 400, "shards": 800}
PROTOCOL = Experiment(
    "heterofl",
    dataset="cifar10",
    clients=100,
    cohort=10,
    epochs=5,
    batch_size=10,
    lr=0.1,
    momentum=0.9,
    weight_decay=5e-4,
    examples="all",
    test=1 / 6,
    validation=0.0,
    eval_every=10,
)
SMALL: dict[str, Any] = {
    "dataset": "cifar10:every=10,size=16",
    "clients": 20,
    "epochs": 2,
    "rounds": 10,
    "lr": 0.05,
    "lr_decay": 1.0,
    "eval_every": 2,
    "devices": 1,
}
SERVER = "server/test/accuracy"
NARROW = "channels=(16,32,64,128)"
LEVELS = "abcde"
ALONE = tuple(LEVELS)
PAIRS = ("a1-b1", "a1-c1", "a1-d1", "a1-e1", "b1-e1", "a1-b1-c1-d1-e1")
INTERPOLATION = ("a4-b1", "a1-b4", "a4-e1", "a1-e4")
MIXES = (*ALONE, *PAIRS, *INTERPOLATION)
QUICK = ("a", "e", "a1-e1", "a1-e4")


class Row(NamedTuple):
    """What a mix reached, percent; NaN for a level that is not in it."""

    data: str
    mix: str
    seeds: int
    rounds: int
    best_global: float
    final_global: float
    final_std: float  # over seeds, of the global model; NaN for one
    a: float  # slices of this level after the last round, pooled over its clients
    b: float
    c: float
    d: float
    e: float


class Bytes(NamedTuple):
    """What a client of a level is sent and sends in a round."""

    level: str
    parameters: int
    down: int
    up: int
    statistics_down: int  # the second exchange: the model of level a ...
    statistics_up: int  # ... and its statistics


def levels_of(mix: str) -> str:
    """The level of each client of a cycle: "aeee" of "a1-e3"."""
    parts = re.findall(r"([a-e])(\d*)", mix)
    return "".join(level * int(count or 1) for level, count in parts)


def experiment_of(data: str, mix: str, small: bool) -> Experiment:
    """The experiment behind one row."""
    rounds = ROUNDS[data]
    options = f":{NARROW}" if small else ""
    experiment = PROTOCOL.replace(
        partition=data,
        models=[f"heterofl_{level}{options}" for level in levels_of(mix)],
        rounds=rounds,
        lr_decay=0.01 ** (1 / rounds),
        label=mix,
    )
    return experiment.replace(**SMALL) if small else experiment


def row_of(data: str, mix: str, runs: Sweep) -> Row:
    """The figures of a sweep over seeds."""
    overall = np.stack([best_round.pooled(result, SERVER) for result in runs.results])
    of_levels = {level: level_accuracy(runs, mix, level) for level in LEVELS}
    return Row(
        data=data,
        mix=mix,
        seeds=len(overall),
        rounds=int(runs.results[0].round[-1]),
        best_global=float(overall.max(1).mean()),
        final_global=float(overall[:, -1].mean()),
        final_std=float(std_over_seeds(overall[:, -1])),
        **of_levels,
    )


def level_accuracy(runs: Sweep, mix: str, level: str) -> float:
    """The accuracy of the clients of a level after the last round, mean over seeds."""
    cycle = np.array(list(levels_of(mix)))
    if level not in cycle:
        return float("nan")
    found = []
    for result in runs.results:
        clients = np.arange(len(result.size["test"]))
        theirs = cycle[clients % len(cycle)] == level
        found.append(best_round.pooled(result, clients=theirs)[-1])
    return float(np.mean(found))


def bytes_of_levels(small: bool) -> list[Bytes]:
    """The bytes of each level where all five take part, from shapes alone."""
    experiment = experiment_of("iid", "abcde", small)
    pixels = 16 if small else 32
    shape = Shape(
        num_clients=20,
        input_shape=(pixels, pixels, 3),
        num_classes=10,
        scale=255.0,
    )
    local = training.make_local(experiment)
    rows = []
    for level, task in zip(
        LEVELS, components.make_tasks(experiment, shape), strict=True
    ):
        method = methods.build("heterofl", task, local, {})
        model, statistics = trace_exchanges(method, task, 20, shape.input_shape)
        leaves = jax.tree.leaves(tree.parameters(shapes_of_model(task)))
        row = Bytes(
            level=level,
            parameters=sum(leaf.size for leaf in leaves),
            down=tree.nbytes(model.message),
            up=tree.nbytes(model.upload),
            statistics_down=tree.nbytes(statistics.message),
            statistics_up=tree.nbytes(statistics.upload),
        )
        rows.append(row)
    return rows


def markdown(rows: Sequence[Row], levels: Sequence[Bytes]) -> str:
    """A table for each way to deal rows, and the bytes of each level."""
    lines = []
    for data in dict.fromkeys(row.data for row in rows):
        own = [row for row in rows if row.data == data]
        lines += [
            f"### CIFAR-10, {data}, {own[0].rounds} rounds, {own[0].seeds} seeds\n",
            f"| mix | global, last | global, best | {' | '.join(LEVELS)} |",
            f"|---|---|---|{'---|' * len(LEVELS)}",
            *map(_line, own),
            "",
        ]
    lines += [
        "### Bytes of a client and round\n",
        f"| {' | '.join(Bytes._fields)} |",
        f"|{'---|' * len(Bytes._fields)}",
    ]
    for each in levels:
        numbers = [f"{number:,}" for number in each[1:]]
        lines.append(f"| {each.level} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _line(row: Row) -> str:
    texts = [
        row.mix,
        with_std(row.final_global, row.final_std),
        f"{row.best_global:.2f}",
        *(decimals(getattr(row, level)) for level in LEVELS),
    ]
    return f"| {' | '.join(texts)} |"


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    data: Annotated[tuple[Literal["iid", "shards"], ...], arg(metavar="DATA ...")] = (
        "iid",
        "shards",
    ),
    mixes: Annotated[tuple[Literal[MIXES], ...], arg(metavar="MIX ...")] = (),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Results = None,
) -> list[Row]:
    """HeteroFL's global model and each level, by the mix of levels."""
    use_compile_cache()
    small = scale == "small"
    folder = Path(out or f"runs/heterofl-{scale}" + (f"-{rounds}" if rounds else ""))
    rows = []
    for dealt in data:
        for mix in mixes or (QUICK if small else MIXES):
            print(f"{dealt}, {mix}", file=sys.stderr, flush=True)
            experiment = experiment_of(dealt, mix, small)
            if rounds:
                experiment = experiment.replace(rounds=rounds)
            runs = sweep(experiment, {"seed": seeds}, out=folder / dealt / mix)
            rows.append(row_of(dealt, mix, runs))
    text = markdown(rows, bytes_of_levels(small))
    print(text)
    place = Path(results) if results else HERE / "results"
    best_round.write(place / f"heterofl_levels_{scale}", rows, text)
    return rows


if __name__ == "__main__":
    script.run(main)
