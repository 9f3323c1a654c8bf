"""One tidy table of finished runs: a row for each number over clients.

The columns are those of `COLUMNS`. The last round and the round chosen on validation
data have all metrics of all models and groups of clients; other evaluated rounds have
the accuracy and loss of all clients. Figures of fairness have a mean alone. A sweep's
table (`sweeps.read`) has the same columns.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pfljax.evaluation import fairness
from pfljax.evaluation.over_clients import FIGURES, pick_lambda
from pfljax.report.frames import Frame, make_frame
from pfljax.report.groups import Group
from pfljax.report.runs import (
    NEWEST,
    Run,
    clients_at,
    is_local,
    is_tuned_fedavg,
    main_record,
    model_text,
    number,
    personal_is_server,
    read_run,
)
from pfljax.runtime.files import FileError

COLUMNS = (
    "method",
    "seed",
    "round",
    "last",  # whether it is the last round
    "chosen",  # whether it is the round chosen on validation data
    "bytes_up",  # of all clients, up to this round
    "bytes_down",
    "clock",  # virtual seconds up to this round
    "seconds",  # of training, in all
    "model",
    "main",  # whether methods are compared by this model
    "clients",
    "split",
    "metric",
    *FIGURES,
)
CURVES = ("accuracy", "loss")  # metrics of all evaluated rounds
ORACLE = "oracle (chosen on test)"
MIXTURES = {  # in summary.json -> model in the table
    "chosen_on_validation": "λ chosen on validation",
    "half": "λ = 0.5",
    "oracle_chosen_on_test": ORACLE,
    "ensemble": "ensemble over λ",
}


def tidy(groups: Sequence[Group], baselines: Sequence[Run] = ()) -> Frame:
    """The table of the runs; `baselines` are compared with and have no rows."""
    runs = [run for group in groups for run in group.runs]
    rows = []
    for group in groups:
        for run in group.runs:
            head = {"method": group.label, "seed": run.seed, "seconds": run.seconds}
            rows += [head | row for row in _rows(run, [*runs, *baselines])]
    return make_frame(rows, COLUMNS)


def recorded_baselines(runs: Sequence[Run]) -> list[Run]:
    """Local training that runs had as their `baseline`, where it still exists."""
    folders = dict.fromkeys(run.config.get("baseline") for run in runs)
    baselines = []
    for folder in filter(None, folders):
        # The page of a run does not depend on what became of another.
        with contextlib.suppress(ValueError, FileError):
            baselines.append(read_run(folder))
    return baselines


def _rows(run: Run, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    for moment in _moments(run):
        is_shown = moment["last"] or moment["chosen"]
        evaluations = moment.pop("evaluations")
        main = main_record(evaluations)
        # The main model first, as in all tables.
        for record in sorted(evaluations, key=lambda r: not _is_main(r, main)):
            if not is_shown and record["clients"] != "all":
                continue
            head = moment | {
                "model": model_text(record),
                "main": _is_main(record, main),
                "clients": record["clients"],
                "split": record["split"],
            }
            metrics = record["metrics"]
            for metric in metrics if is_shown else CURVES:
                figures = metrics.get(metric)
                yield head | {"metric": metric} | (figures or {})
            if is_shown and record["clients"] == "all" and record["split"] == "test":
                clients = _client_accuracy(run, record, moment["round"])
                yield from _fairness(head, run, runs, clients)
        if moment["last"]:
            yield from _mixture_rows(moment, run, runs)


def _is_main(record: dict[str, Any], main: dict[str, Any] | None) -> bool:
    """Whether it is of the same model as the main record, whatever the clients."""
    if main is None:
        return False
    return all(record[key] == main[key] for key in ("model", "finetune", "when"))


def _moments(run: Run) -> Iterator[dict[str, Any]]:
    """The evaluated rounds of a run, each with its evaluations and what it had spent.

    Those of the last round are the summary's, which has the clients held out as well.
    """
    last = run.summary["last"]
    chosen = run.summary.get("chosen_on_validation") or {}
    for line in run.rounds:
        is_last = line["round"] == last["round"]
        evaluations = last["evaluations"] if is_last else line.get("evaluations")
        if evaluations:
            yield {
                "round": line["round"],
                "last": is_last,
                "chosen": line["round"] == chosen.get("round"),
                "bytes_up": number(line.get("bytes_up")),
                "bytes_down": number(line.get("bytes_down")),
                "clock": number(line.get("clock")),
                "evaluations": evaluations,
            }


def _client_accuracy(
    run: Run, record: dict[str, Any], round_: int
) -> np.ndarray | None:
    """The accuracy f32[C] behind a record; None if the run has not kept it."""
    if record["model"] == "server":
        return None if record["finetune"] else clients_at(run, "server", round_)
    view = "personal" if record["when"] == NEWEST else "trained"
    return clients_at(run, view, round_)


def _mixture_rows(
    moment: dict[str, Any], run: Run, runs: Sequence[Run]
) -> Iterator[dict[str, Any]]:
    """The models on the path between two endpoints, after the last round."""
    for choice, model in MIXTURES.items():
        metrics = (run.summary.get("mixture") or {}).get(choice)
        if not metrics:
            continue
        head = moment | {
            "model": model,
            "main": False,
            "clients": "all",
            "split": "test",
        }
        for metric, figures in metrics.items():
            yield head | {"metric": metric} | (figures or {})
        clients = _mixture_clients(run, choice)
        yield from _fairness(head, run, runs, clients)


def _mixture_clients(run: Run, choice: str) -> np.ndarray | None:
    """Accuracy f32[C] of a model on the path, as in `MIXTURES`."""
    if choice == "ensemble":
        return run.per_client.get("mixture/test/ensemble/accuracy")
    test = run.per_client.get("mixture/test/accuracy")
    if test is None:
        return None
    if choice == "half":
        return test[:, test.shape[1] // 2]
    if choice == "oracle_chosen_on_test":
        return test.max(axis=1)
    validation = run.per_client.get("mixture/validation/accuracy")
    return None if validation is None else pick_lambda(validation, test)


def _fairness(
    head: dict[str, Any], run: Run, runs: Sequence[Run], clients: np.ndarray | None
) -> Iterator[dict[str, Any]]:
    """How the accuracy f32[C] of the clients is spread, and who gains over what."""
    if clients is None:
        return
    local = tuned = before = None
    local_run = None if is_local(run.config) else find_baseline(run, runs, is_local)
    tuned_run = find_baseline(run, runs, is_tuned_fedavg)
    if local_run is not None:
        local = _at_the_same(local_run, head)
    if tuned_run is not None and not is_tuned_fedavg(run.config):
        tuned = _at_the_same(tuned_run, head)
    if not is_local(run.config) and not personal_is_server(run):
        before = clients_at(run, "server", head["round"])
    figures = fairness.figures(clients, local, before, tuned)
    # A run with a baseline keeps this share, even if the baseline is gone.
    if local is None and head["last"] and not is_local(run.config):
        figures["worse_than_local"] = number(run.summary.get("worse_than_local"))
    for metric, value in figures.items():
        if np.isfinite(value):
            yield head | {"metric": metric, "mean": value}


def _at_the_same(run: Run, moment: dict[str, Any]) -> np.ndarray | None:
    """Personal accuracy f32[C] of another run at the same moment: last, or chosen."""
    if moment["last"]:
        return clients_at(run, "personal")
    chosen = run.summary.get("chosen_on_validation") or {}
    return clients_at(run, "personal", chosen.get("round", -1))


def find_baseline(run: Run, runs: Sequence[Run], is_baseline: Any) -> Run | None:
    """The run of a baseline on the same data and seed, with the most equal settings."""
    candidates = [
        other
        for other in runs
        if is_baseline(other.config)
        and other.seed == run.seed
        and other.partition["sha256"] == run.partition["sha256"]
    ]

    def count_equal(other: Run) -> int:
        return sum(other.config.get(name) == run.config[name] for name in run.config)

    return max(candidates, key=count_equal, default=None)
