"""The rows of a comparison: a method judged by one of its models, a value a seed."""

from collections.abc import Mapping, Sequence

import numpy as np

from pfljax.report.clients import (
    CHOSEN,
    ENSEMBLE,
    HALF,
    LAST,
    ORACLE,
    Which,
    client_accuracy,
    fairness_of,
    mixture_accuracy,
    moment_of,
    which_of,
)
from pfljax.report.columns import (
    CALIBRATION,
    COLUMNS,
    FAIRNESS,
    Clients,
    Row,
    numbers_of,
    stated_once,
)
from pfljax.report.groups import Group
from pfljax.report.key_figures import model_text
from pfljax.report.runs import (
    Run,
    find_records,
    is_baseline,
    judged_records,
    number,
)

MIXTURE_ROWS = {  # key of the summary -> what the table says
    CHOSEN: "λ chosen on validation",
    HALF: "λ = 0.5",
    ORACLE: "oracle (chosen on test)",
    ENSEMBLE: "ensemble over λ",
}
NO_MOMENT = {"round": 0, "evaluations": ()}
NO_RECORD = {"metrics": {}}


def method_rows(group: Group, runs: Sequence[Run], at: str, clients: str) -> list[Row]:
    """A row for each judged model of a method, then those of its mixture."""
    # A dict keeps the order of the records; a set would not.
    judged: dict[Which, None] = {}
    for run in group.runs:
        moment = moment_of(run, at) or NO_MOMENT
        for record in judged_records(moment["evaluations"], clients):
            judged[which_of(record)] = None
    rows = [_record_row(group, runs, at, clients, which) for which in judged]
    if at == LAST and clients == "all":
        rows += _mixture_rows(group, runs)
    return stated_once(rows)


def _record_row(
    group: Group, runs: Sequence[Run], at: str, clients: str, which: Which
) -> Row:
    """The row of one judged model over the seeds of a group."""
    by_seed = []
    by_client = []
    rounds = []
    is_server = []
    for run in group.runs:
        moment = moment_of(run, at) or NO_MOMENT
        tests = find_records(moment["evaluations"], split="test", clients=clients)
        # A seed that lacks the record has a row of NaN among the others.
        records = find_records(tests, **which._asdict()) or [NO_RECORD]
        metrics = records[0]["metrics"]
        values = numbers_of(metrics) | _traffic(run, moment["round"])
        # Arrays are kept of all clients alone.
        accuracy = client_accuracy(run, which, at) if clients == "all" else None
        values |= fairness_of(run, runs, accuracy, at)
        by_seed.append(values)
        by_client.append(accuracy)
        rounds.append(moment["round"])
        twins = find_records(tests, model="server", finetune=which.finetune)
        is_server.append(any(twin["metrics"] == metrics for twin in twins))
    # A model that scores as the server's on every seed is the server's.
    if all(is_server):
        which = which._replace(model="server")
    judged = f"{model_text(which._asdict())}, {which.when}"
    return _row(
        group=group,
        judged=judged,
        ranked=True,
        rounds=rounds,
        by_seed=by_seed,
        by_client=by_client,
    )


def _mixture_rows(group: Group, runs: Sequence[Run]) -> list[Row]:
    """Rows over the ends of a mixture, for the choices of lambda that runs record."""
    rows = []
    mixtures = [run.summary.get("mixture") or {} for run in group.runs]
    rounds = [run.summary["rounds"] for run in group.runs]
    for choice, text in MIXTURE_ROWS.items():
        if not any(mixture.get(choice) for mixture in mixtures):
            continue
        by_seed = []
        by_client = []
        for run, mixture in zip(group.runs, mixtures, strict=True):
            metrics = mixture.get(choice) or {}
            values = numbers_of(metrics) | _traffic(run, run.summary["rounds"])
            accuracy = mixture_accuracy(run, choice)
            values |= fairness_of(run, runs, accuracy, LAST)
            by_seed.append(values)
            by_client.append(accuracy)
        row = _row(
            group=group,
            judged=text,
            # Who chooses on test rows would be best without being better.
            ranked=choice != ORACLE,
            rounds=rounds,
            by_seed=by_seed,
            by_client=by_client,
        )
        rows.append(row)
    return rows


def _row(
    group: Group,
    judged: str,
    ranked: bool,
    rounds: Sequence[int],
    by_seed: Sequence[Mapping[str, float]],
    by_client: Sequence[np.ndarray | None],
) -> Row:
    """A row of values per seed, from a mapping per seed."""
    # With the columns of all tables: calibration and fairness show the same rows.
    values = {}
    for column in (*COLUMNS, *CALIBRATION, *FAIRNESS):
        # Arrays are not kept of every model, nor of clients held out.
        numbers = [seed.get(column.key, np.nan) for seed in by_seed]
        values[column.key] = np.array(numbers, float)
    first = group.runs[0].config
    clients = []
    for run, accuracy in zip(group.runs, by_client, strict=True):
        clients.append(Clients(data=run.partition["sha256"], accuracy=accuracy))
    return Row(
        method=group.label,
        judged=judged,
        ranked=ranked,
        seeds=tuple(run.config["seed"] for run in group.runs),
        rounds=tuple(rounds),
        values=values,
        clients=tuple(clients),
        baseline=is_baseline(first["algorithm"], first.get("hyper") or {}),
    )


def _traffic(run: Run, at_round: int) -> dict[str, float]:
    """Bytes of all clients up to and with a round."""
    lines = [line for line in run.rounds if line["round"] == at_round]
    # A moment that a run lacks is round 0, which no line is of.
    line = lines[0] if lines else {}
    return {
        "mb_up": number(line.get("bytes_up")),
        "mb_down": number(line.get("bytes_down")),
    }
