"""The comparison table: one row a method and judged model, numbers over seeds.

Every value is kept for each seed. Std over clients is inside one run (population std,
then averaged over seeds); std over seeds is between runs (sample std, n - 1). They are
two numbers and never mixed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.report.columns import CALIBRATION, COLUMNS, Row, Table, numbers_of
from pfljax.report.runs import Group, Run, find_records, judged_records, number
from pfljax.runs.baseline import worse_share

LAST, CHOSEN = "last", "chosen_on_validation"
PROBLEM = (
    "dataset", "partition", "clients", "noise", "test", "test_from", "rows", "unseen",
)  # fmt: skip
MIXTURE_ROWS = {  # key of the summary -> what the table says
    "chosen_on_validation": "λ chosen on validation",
    "half": "λ = 0.5",
    "oracle_chosen_on_test": "oracle (chosen on test)",
}


class Which(NamedTuple):
    """Which parameters a record judges: the fields of the record."""

    model: str
    finetune: int
    when: str


def comparison_table(
    groups: Sequence[Group], at: str = LAST, clients: str = "all"
) -> Table:
    """Methods by final numbers.

    Args:
        groups: of `group_runs`.
        at: "last" round, or each run's round "chosen_on_validation".
        clients: "all", "participants", "never chosen" or "unseen".
    """
    runs = [run for group in groups for run in group.runs]
    rows = [row for g in groups for row in _method_rows(g, runs, at, clients)]
    name = {LAST: "last", CHOSEN: "validation"}[at]
    name += "" if clients == "all" else f"_{clients.replace(' ', '_')}"
    caption, odd = _caption(at, clients), apart(runs)
    if odd:
        rows = [row._replace(ranked=False) for row in rows]
        caption += (
            f" The runs differ in {', '.join(odd)}: their numbers are not of one "
            "problem, and none is marked as the best."
        )
    return Table(name, caption, COLUMNS, tuple(rows))


def apart(runs: Sequence[Run]) -> list[str]:
    """The settings of the problem itself that differ between the runs."""
    return [
        name for name in PROBLEM if len({str(run.config.get(name)) for run in runs}) > 1
    ]


def calibration_table(table: Table) -> Table:
    """The same rows by top-5 accuracy, loss and calibration error."""
    caption = (
        f"{table.caption.split(' Accuracy is')[0]} Means over clients, ± the sample "
        "standard deviation over seeds. ECE and MCE have 15 bins over all rows of a "
        "client; over batches they are binned batch by batch."
    )
    rows = tuple(row for row in table.rows if not np.isnan(row.values["loss"]).all())
    return Table(f"{table.name}_calibration", caption, CALIBRATION, rows)


def over_seeds(values: np.ndarray) -> tuple[float, float, int]:
    """(mean, sample std, count) of the defined values; NaN where there are too few."""
    values = values[~np.isnan(values)]
    mean = float(values.mean()) if len(values) else float("nan")
    std = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return mean, std, len(values)


def local_baseline(run: Run, runs: Sequence[Run]) -> Run | None:
    """The run of "local" on the same rows and seed, the most alike where several are.

    Same rows: the same SHA-256 of the partition.
    """
    candidates = [
        other
        for other in runs
        if other.config["algorithm"] == "local"
        and other.config["seed"] == run.config["seed"]
        and other.partition["sha256"] == run.partition["sha256"]
    ]
    shared = [
        sum(other.config.get(k) == v for k, v in run.config.items())
        for other in candidates
    ]
    return candidates[int(np.argmax(shared))] if candidates else None


def judged_clients(run: Run) -> np.ndarray | None:
    """Test accuracy f32[C] at the last round of the model that the run is judged by."""
    records = judged_records(run.summary[LAST]["evaluations"])
    which = [Which(r["model"], r["finetune"], r["when"]) for r in records[:1]]
    return _per_client(run, which[0], LAST) if which else None


def _caption(at: str, clients: str) -> str:
    """What the numbers are, in one paragraph."""
    when = {LAST: "the last round", CHOSEN: "the round chosen on validation data"}[at]
    who = "all clients" if clients == "all" else f"clients: {clients}"
    return (
        f"Test metrics at {when}, over {who}. Accuracy is the unweighted mean over "
        "clients; ± is the sample standard deviation of that mean over n seeds. Std "
        "over clients is the population standard deviation inside one run, averaged "
        "over seeds; the other columns are means over seeds. MB (1e6 bytes) are the "
        "totals of all clients up to that round."
    )


def _method_rows(group: Group, runs: Sequence[Run], at: str, clients: str) -> list[Row]:
    """A row for each judged model of a method, then those of its mixture."""
    moments = [_moment(run, at) for run in group.runs]
    if all(moment is None for moment in moments):
        return []
    wanted = dict.fromkeys(
        Which(r["model"], r["finetune"], r["when"])
        for moment in moments
        for r in judged_records((moment or {}).get("evaluations", ()), clients)
    )
    rows = [_record_row(group, runs, at, clients, which) for which in wanted]
    if at == LAST and clients == "all":
        rows += _mixture_rows(group, runs)
    return rows


def _moment(run: Run, at: str) -> dict[str, Any] | None:
    """{"round", "evaluations"} of the last or the chosen round."""
    return run.summary.get(at)


def _record_row(
    group: Group, runs: Sequence[Run], at: str, clients: str, which: Which
) -> Row:
    """The row of one judged model over the seeds of a group."""
    columns, rounds, same = [], [], []
    for run in group.runs:
        moment = _moment(run, at) or {"round": 0, "evaluations": ()}
        tests = find_records(moment["evaluations"], split="test", clients=clients)
        record = next(iter(find_records(tests, **which._asdict())), {"metrics": {}})
        values = numbers_of(record["metrics"]) | _traffic(run, moment["round"])
        per_client = _per_client(run, which, at) if clients == "all" else None
        values["worse_than_local"] = _worse(run, runs, per_client, at)
        columns.append(values)
        rounds.append(moment["round"])
        twins = find_records(tests, model="server", finetune=which.finetune)
        same.append(any(twin["metrics"] == record["metrics"] for twin in twins))
    judged = _judged_text(which._replace(model="server") if all(same) else which)
    return _row(group, judged, True, rounds, columns)


def _mixture_rows(group: Group, runs: Sequence[Run]) -> list[Row]:
    """Rows over the ends of a mixture, as far as the runs tell of them."""
    rows = []
    for key, text in MIXTURE_ROWS.items():
        metrics = [(run.summary.get("mixture") or {}).get(key) for run in group.runs]
        if not any(metrics):
            continue
        columns = []
        for run, found in zip(group.runs, metrics, strict=True):
            values = numbers_of(found or {}) | _traffic(run, run.summary["rounds"])
            per_client = _mixture_clients(run, key)
            values["worse_than_local"] = _worse(run, runs, per_client, LAST)
            columns.append(values)
        rounds = [run.summary["rounds"] for run in group.runs]
        rows.append(_row(group, text, not key.startswith("oracle"), rounds, columns))
    return rows


def _row(group: Group, judged: str, ranked: bool, rounds, columns: list[dict]) -> Row:
    """A row of values per seed, from a dict per seed."""
    values = {
        c.key: np.array([v[c.key] for v in columns], float)
        for c in (*COLUMNS, *CALIBRATION)
    }
    seeds = tuple(run.config["seed"] for run in group.runs)
    return Row(group.label, judged, ranked, seeds, tuple(rounds), values)


def _judged_text(which: Which) -> str:
    """Which parameters were judged, and when."""
    tuned = f" + {which.finetune} local steps" if which.finetune else ""
    return f"{which.model}{tuned}, {which.when}"


def _traffic(run: Run, at_round: int) -> dict[str, float]:
    """Bytes of all clients up to and with a round."""
    line = next((x for x in run.rounds if x["round"] == at_round), {})
    up, down = line.get("bytes_up"), line.get("bytes_down")
    return {"mb_up": number(up), "mb_down": number(down)}


def _at(run: Run, name: str, at: str) -> np.ndarray | None:
    """Test accuracy f32[C] of a view at the last or the chosen round."""
    values, moment = run.per_client.get(f"{name}/test/accuracy"), _moment(run, at)
    if values is None or moment is None:
        return None
    found = np.flatnonzero(run.per_client["round"] == moment["round"])
    return values[found[0]] if len(found) else None


def _per_client(run: Run, which: Which, at: str) -> np.ndarray | None:
    """Test accuracy f32[C] behind a record: the array of the view that was judged."""
    if which.model == "server":
        return None if which.finetune else _at(run, "server", at)
    trained = which.when == "after local training"
    return _at(run, "trained" if trained else "personal", at)


def _mixture_clients(run: Run, key: str) -> np.ndarray | None:
    """Test accuracy f32[C] of one way to set lambda."""
    test = run.per_client.get("mixture/test/accuracy")
    validation = run.per_client.get("mixture/validation/accuracy")
    if test is None or (key == CHOSEN and validation is None):
        return None
    # Ties go to the lambda nearest 1/2, then to the smaller one.
    far = np.abs(run.per_client["mixture/lambda"] - 0.5).round(3)
    if key == "half":
        return test[:, far.argmin()]
    if key != CHOSEN:
        return test.max(axis=1)
    order = np.argsort(far, kind="stable")
    best = order[np.argmax(np.asarray(validation)[:, order], axis=1)]
    return np.take_along_axis(test, best[:, None], 1)[:, 0]


def _worse(
    run: Run, runs: Sequence[Run], per_client: np.ndarray | None, at: str
) -> float:
    """Share of clients worse off than with "local"; NaN for local itself."""
    if run.config["algorithm"] == "local" or per_client is None:
        return float("nan")
    baseline = local_baseline(run, runs)
    theirs = None if baseline is None else _at(baseline, "personal", at)
    if theirs is not None:
        return worse_share(per_client, theirs)
    told = run.summary.get("worse_than_local") if at == LAST else None
    return number(told)
