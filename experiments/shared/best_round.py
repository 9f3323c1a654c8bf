"""Tables of the best round, as PFLlib and HtFLlib report it, and of margins.

The pooled accuracy is the number of correct test examples divided by the number of all
test examples, and the mean is over clients. The best round is chosen on test examples,
so it is optimistic; the last round is shown as well. Numbers are percentages: means
over seeds and their sample standard deviation.
"""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from shared import script
from shared.published import std_over_seeds, with_std
from shared.swept import Result, Sweep, sweep

from pfljax.data import Federation
from pfljax.runs.settings import Experiment
from pfljax.runtime import errors
from pfljax.runtime.devices import use_compile_cache

MODEL = "personal/test/accuracy"


class Row(NamedTuple):
    """What a method reached in a column of a table."""

    column: str
    method: str
    seeds: int
    rounds: int
    best_acc_pooled: float
    best_std: float  # NaN for one seed
    best_acc_mean: float
    final_acc_pooled: float
    final_std: float
    final_acc_mean: float
    best_round: float  # of the pooled accuracy, mean over seeds


def pooled(
    result: Result, metric: str = MODEL, clients: Any = slice(None)
) -> np.ndarray:
    """Correct test rows over all of these clients, percent, f[T].

    Clients without test rows are out.
    """
    size = result.size["test"][clients]
    correct = np.nan_to_num(result.metrics[metric][:, clients]) * size
    return 100 * correct.sum(1) / size.sum()


def mean_over_clients(result: Result) -> np.ndarray:
    """The accuracy, percent, f[T], every client with test rows counting as any."""
    return 100 * np.nanmean(result.metrics[MODEL], axis=1)


def row_of(column: str, method: str, runs: Sweep) -> Row:
    """The figures of a sweep over seeds."""
    by_pool = np.stack([pooled(result) for result in runs.results])
    by_client = np.stack([mean_over_clients(result) for result in runs.results])
    rounds = runs.results[0].round
    best = by_pool.max(1)
    return Row(
        column=column,
        method=method,
        seeds=len(best),
        rounds=int(rounds[-1]),
        best_acc_pooled=float(best.mean()),
        best_std=float(std_over_seeds(best)),
        best_acc_mean=float(by_client.max(1).mean()),
        final_acc_pooled=float(by_pool[:, -1].mean()),
        final_std=float(std_over_seeds(by_pool[:, -1])),
        final_acc_mean=float(by_client[:, -1].mean()),
        best_round=float(rounds[by_pool.argmax(1)].mean()),
    )


def margin(rows: Sequence[Row], method: str) -> float | None:
    """Points of the best round by which it leads the best of the others.

    None where it, or every other, is not among the rows.
    """
    own = [row.best_acc_pooled for row in rows if row.method == method]
    others = [row.best_acc_pooled for row in rows if row.method != method]
    if not own or not others:
        return None
    return own[0] - max(others)


class Cell(NamedTuple):
    """A sweep to run: where it stands in the table, and what it is."""

    column: str
    method: str
    experiment: Experiment
    federation: Callable[[int], Federation] | None = (
        None  # by seed; None if settings do
    )


def fill(cells: Sequence[Cell], seeds: Sequence[int], out: Path) -> list[Row]:
    """Runs what is not finished below `out`; the rows of all that is.

    A cell that cannot run is told on stderr and left out.
    """
    use_compile_cache()
    rows = []
    for cell in cells:
        print(f"{cell.column}, {cell.method}", file=sys.stderr, flush=True)
        place = out / cell.column / cell.method
        try:
            over = {"seed": seeds}
            runs = sweep(cell.experiment, over, out=place, federation=cell.federation)
        except errors.KINDS as error:
            if errors.shows_traceback():
                raise
            print(f"not run: {error}", file=sys.stderr, flush=True)
            continue
        rows.append(row_of(cell.column, cell.method, runs))
    if not rows:
        raise SystemExit(f"no run is finished in {out}")
    return rows


Published = Callable[[str, str], float | None]  # of (column, method)
Note = Callable[[str, Sequence[Row]], str]  # of (column, all rows)


def tabulate(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    out: Path,
    place: Path,
    note: Note,
    published: Published = lambda column, method: None,
) -> list[Row]:
    """Runs what is left below `out`; prints the table, and writes it to `place`."""
    rows = fill(cells, seeds, out)
    notes = {row.column: note(row.column, rows) for row in rows}
    text = markdown(rows, published, notes)
    print(text)
    write(place, rows, text)
    return rows


def command(
    doc: str,
    name: str,
    cells: Callable[[bool, int | None], list[Cell]],
    note: Note,
    beside: Path,
) -> list[Row]:
    """The rows of a table of `cells` (small, rounds), as the command line asks for it.

    `doc` is the script's, and its tables are written to the folder `beside`.
    """

    def table(
        scale: Literal["small", "paper"] = "small",
        seeds: script.Seeds = (0, 1, 2),
        rounds: script.Rounds = None,
        out: script.Out = None,
        results: script.Results = None,
    ) -> list[Row]:
        begin = f"runs/{name}-{scale}" + (f"-{rounds}" if rounds else "")
        place = Path(results or beside) / f"{name}_{scale}"
        to_run = cells(scale == "small", rounds)
        return tabulate(to_run, seeds, Path(out or begin), place, note)

    table.__doc__ = doc.splitlines()[0]
    return script.run(table)


def gains(rows: Sequence[Row], column: str, base: str) -> dict[str, float]:
    """Points of the best round by which the others lead `base`, by method."""
    best = {row.method: row.best_acc_pooled for row in rows if row.column == column}
    if base not in best:
        return {}
    alone = best.pop(base)
    return {method: value - alone for method, value in best.items()}


def markdown(
    rows: Sequence[Row],
    published: Published = lambda column, method: None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """A table for each column, with a note below it if there is one."""
    lines = []
    for column in dict.fromkeys(row.column for row in rows):
        own = [row for row in rows if row.column == column]
        lines += [
            f"### {column}, {own[0].rounds} rounds, {own[0].seeds} "
            f"{'seed' if own[0].seeds == 1 else 'seeds'}\n",
            "| method | published | best pooled | best mean | final pooled | "
            "final mean | best round |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_line(row, published(column, row.method)) for row in own]
        note = (notes or {}).get(column, "")
        lines.append(f"\n{note}\n" if note else "")
    return "\n".join(lines)


def _line(row: Row, theirs: float | None) -> str:
    texts = (
        row.method,
        "" if theirs is None else f"{theirs:.2f}",
        with_std(row.best_acc_pooled, row.best_std),
        f"{row.best_acc_mean:.2f}",
        with_std(row.final_acc_pooled, row.final_std),
        f"{row.final_acc_mean:.2f}",
        f"{row.best_round:.1f}",
    )
    return f"| {' | '.join(texts)} |"


def write(path: Path, rows: Sequence[Any], text: str) -> None:
    """`path`.csv of rows that are records of one kind, and `path`.md."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        # Nothing ran: the columns of the tables here.
        writer.writerow(rows[0]._fields if rows else Row._fields)
        for row in rows:
            writer.writerow(map(_rounded, row))
    path.with_suffix(".md").write_text(text + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
