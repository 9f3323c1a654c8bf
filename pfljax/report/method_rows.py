"""The rows of a comparison: a method judged by one of its models, a value a seed."""

from collections.abc import Mapping, Sequence

import numpy as np

from pfljax.report.clients import (
    CHOSEN,
    HALF,
    LAST,
    ORACLE,
    Which,
    client_accuracy,
    mixture_accuracy,
    moment_of,
    share_worse_than_local,
    which_of,
)
from pfljax.report.columns import CALIBRATION, COLUMNS, Row, numbers_of
from pfljax.report.runs import Group, Run, find_records, judged_records, number

MIXTURE_ROWS = {  # key of the summary -> what the table says
    CHOSEN: "λ chosen on validation",
    HALF: "λ = 0.5",
    ORACLE: "oracle (chosen on test)",
}
NO_MOMENT = {"round": 0, "evaluations": ()}
NO_RECORD = {"metrics": {}}


def method_rows(group: Group, runs: Sequence[Run], at: str, clients: str) -> list[Row]:
    """A row for each judged model of a method, then those of its mixture."""
    moments = [moment_of(run, at) or NO_MOMENT for run in group.runs]
    judged = dict.fromkeys(
        which_of(record)
        for moment in moments
        for record in judged_records(moment["evaluations"], clients)
    )
    rows = [_record_row(group, runs, at, clients, which) for which in judged]
    if at == LAST and clients == "all":
        rows += _mixture_rows(group, runs)
    return rows


def _record_row(
    group: Group, runs: Sequence[Run], at: str, clients: str, which: Which
) -> Row:
    """The row of one judged model over the seeds of a group."""
    by_seed = []
    rounds = []
    is_server = []
    for run in group.runs:
        moment = moment_of(run, at) or NO_MOMENT
        tests = find_records(moment["evaluations"], split="test", clients=clients)
        records = find_records(tests, **which._asdict())
        metrics = (records[0] if records else NO_RECORD)["metrics"]
        accuracy = client_accuracy(run, which, at) if clients == "all" else None
        values = numbers_of(metrics) | _traffic(run, moment["round"])
        values["worse_than_local"] = share_worse_than_local(run, runs, accuracy, at)
        by_seed.append(values)
        rounds.append(moment["round"])
        twins = find_records(tests, model="server", finetune=which.finetune)
        is_server.append(any(twin["metrics"] == metrics for twin in twins))
    # A model that scores as the server's on every seed is the server's.
    judged = which._replace(model="server") if all(is_server) else which
    return _row(group, _judged_text(judged), True, rounds, by_seed)


def _mixture_rows(group: Group, runs: Sequence[Run]) -> list[Row]:
    """Rows over the ends of a mixture, for the choices of lambda that runs record."""
    rows = []
    rounds = [run.summary["rounds"] for run in group.runs]
    for choice, text in MIXTURE_ROWS.items():
        metrics = [(run.summary.get("mixture") or {}).get(choice) for run in group.runs]
        if not any(metrics):
            continue
        by_seed = []
        for run, recorded in zip(group.runs, metrics, strict=True):
            accuracy = mixture_accuracy(run, choice)
            values = numbers_of(recorded or {}) | _traffic(run, run.summary["rounds"])
            share = share_worse_than_local(run, runs, accuracy, LAST)
            values["worse_than_local"] = share
            by_seed.append(values)
        rows.append(_row(group, text, choice != ORACLE, rounds, by_seed))
    return rows


def _row(
    group: Group,
    judged: str,
    ranked: bool,
    rounds: Sequence[int],
    by_seed: Sequence[Mapping[str, float]],
) -> Row:
    """A row of values per seed, from a mapping per seed."""
    keys = [column.key for column in (*COLUMNS, *CALIBRATION)]
    return Row(
        method=group.label,
        judged=judged,
        ranked=ranked,
        seeds=tuple(run.config["seed"] for run in group.runs),
        rounds=tuple(rounds),
        values={key: np.array([v[key] for v in by_seed], float) for key in keys},
    )


def _judged_text(which: Which) -> str:
    """Which parameters were judged, and when."""
    tuned = f" + {which.finetune} local steps" if which.finetune else ""
    return f"{which.model}{tuned}, {which.when}"


def _traffic(run: Run, at_round: int) -> dict[str, float]:
    """Bytes of all clients up to and with a round."""
    line = next((line for line in run.rounds if line["round"] == at_round), {})
    return {
        "mb_up": number(line.get("bytes_up")),
        "mb_down": number(line.get("bytes_down")),
    }
