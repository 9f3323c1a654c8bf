"""One tidy table of finished runs: a row for each number over clients.

The columns are those of `COLUMNS`. The last round and the round chosen on validation
data have all metrics of all models and groups of clients; other evaluated rounds have
the metric that leads and the loss of all clients. Figures of fairness have a mean
alone.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.evaluation import fairness
from pfljax.evaluation.over_clients import FIGURES, headline, pick_lambda
from pfljax.report.frames import Frame, make_frame
from pfljax.report.lead import Lead, find_lead, make_lead
from pfljax.report.runs import (
    client_values,
    is_local,
    is_main,
    is_tuned_fedavg,
    model_text,
    number,
    personal_is_server,
)
from pfljax.report.seeds import Group
from pfljax.runs.log import NEWEST
from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment

Row = dict[str, Any]
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
    "diverged",  # whether the run has
    "model",
    "main",  # whether methods are compared by this model
    "clients",
    "split",
    "metric",
    "leads",  # whether methods are compared by this metric
    *FIGURES,
)
BASELINES = {"local": is_local, "tuned": is_tuned_fedavg}
ORACLE = "oracle (chosen on test)"
MIXTURES = {  # in summary.json -> model in the table
    "chosen_on_validation": "λ chosen on validation",
    "half": "λ = 0.5",
    "oracle_chosen_on_test": ORACLE,
    "ensemble": "ensemble over λ",
}


def tidy(groups: Sequence[Group]) -> Frame:
    """The table of the runs."""
    runs = [run for group in groups for run in group.runs]
    lead = find_lead(runs)
    rows: list[Row] = []
    for group in groups:
        for run in group.runs:
            head: Row = {"method": group.label, "seed": run.experiment.seed}
            head["seconds"] = number(run.environment.get("seconds"))
            head["diverged"] = "diverged" in run.summary
            references = {
                name: _find_baseline(run, runs, is_baseline)
                for name, is_baseline in BASELINES.items()
            }
            for line in _evaluated_lines(run):
                rows += [head | row for row in _line_rows(run, line, lead, references)]
    frame = make_frame(rows, COLUMNS)
    frame["leads"] = frame.metric == lead.name
    return frame


def select_main(frame: Frame) -> Frame:
    """The rows of the main models, over all clients and on test examples."""
    return frame[frame.main & (frame.clients == "all") & (frame.split == "test")]


def main_means(frame: Frame) -> dict[str, dict[int, float]]:
    """The metric that leads, of the main models at the end, by method and seed.

    A method of which a run has diverged is left out.
    """
    rows = select_main(frame[frame["last"] & frame.leads])
    rows = rows[rows["mean"].notna()]
    rows = rows[~rows.method.isin(rows.method[rows.diverged.eq(True)])]
    methods = rows.set_index("seed").groupby("method", sort=False)
    return {str(method): seeds["mean"].to_dict() for method, seeds in methods}


def _evaluated_lines(run: Result) -> Iterator[Row]:
    """The lines of the log that have evaluations.

    The last one is the summary's, which has the clients held out as well.
    """
    last = run.summary["last"]
    for line in run.metrics:
        if line["round"] == last["round"]:
            yield line | last
        elif line.get("evaluations"):
            yield line


def _line_rows(
    run: Result, line: Row, lead: Lead, references: Mapping[str, Result | None]
) -> Iterator[Row]:
    """The rows of an evaluated round."""
    chosen = run.summary.get("chosen_on_validation") or {}
    head: Row = {
        "round": line["round"],
        "last": line["round"] == run.summary["last"]["round"],
        "chosen": line["round"] == chosen.get("round"),
        "bytes_up": number(line.get("bytes_up")),
        "bytes_down": number(line.get("bytes_down")),
        "clock": number(line.get("clock")),
    }
    is_shown = head["last"] or head["chosen"]
    # The main model first, as in all tables.
    for record in sorted(line["evaluations"], key=lambda each: not is_main(each)):
        if not is_shown and record["clients"] != "all":
            continue
        model = head | {
            "model": model_text(record),
            "main": is_main(record),
            "clients": record["clients"],
            "split": record["split"],
        }
        curves = dict.fromkeys((lead.name, "loss"))
        for metric in record["metrics"] if is_shown else curves:
            yield model | {"metric": metric} | record["metrics"].get(metric, {})
        if is_shown and record["clients"] == "all" and record["split"] == "test":
            view = record["model"] if record["when"] == NEWEST else "trained"
            clients = client_values(run, lead.name, view, line["round"])
            yield from _fairness_rows(model, run, lead, references, clients)
    if head["last"]:
        yield from _mixture_rows(head, run, lead, references)


def _mixture_rows(
    head: Row, run: Result, lead: Lead, references: Mapping[str, Result | None]
) -> Iterator[Row]:
    """The models on the path between two endpoints, after the last round."""
    mixture = run.summary.get("mixture") or {}
    more = {"main": False, "clients": "all", "split": "test"}
    for choice, model in MIXTURES.items():
        if not mixture.get(choice):
            continue
        row = head | more | {"model": model}
        for metric, figures in mixture[choice].items():
            yield row | {"metric": metric} | figures
        clients = _mixture_values(run, lead.name, choice)
        yield from _fairness_rows(row, run, lead, references, clients)


def _mixture_values(run: Result, metric: str, choice: str) -> np.ndarray | None:
    """The metric f32[C] of a model on the path, as in `MIXTURES`."""
    if choice == "ensemble":
        return run.clients.get(f"mixture/test/ensemble/{metric}")
    test = run.clients.get(f"mixture/test/{metric}")
    if test is None:
        return None
    if choice == "half":
        return test[:, test.shape[1] // 2]
    split = "test" if choice == "oracle_chosen_on_test" else "validation"
    # Whatever leads, lambda is chosen by the metric of the task.
    of_task = make_lead(headline(run.personal.test.figures))
    chosen_on = run.clients.get(f"mixture/{split}/{of_task.name}")
    return None if chosen_on is None else pick_lambda(of_task.sign * chosen_on, test)


def _fairness_rows(
    head: Row,
    run: Result,
    lead: Lead,
    references: Mapping[str, Result | None],
    clients: np.ndarray | None,
) -> Iterator[Row]:
    """The spread of the metric f32[C], and gains over baselines and the server."""
    if clients is None:
        return
    before = None
    if not is_local(run.experiment) and not personal_is_server(run, lead.name):
        before = client_values(run, lead.name, "server", head["round"])
    local, tuned = (
        reference and _personal_at(reference, lead.name, head["last"])
        for reference in (references["local"], references["tuned"])
    )
    figures = fairness.figures(clients, local, before, tuned, lead.sign)
    for metric, value in figures.items():
        if np.isfinite(value):
            yield head | {"metric": metric, "mean": value}


def _personal_at(run: Result, metric: str, last: bool) -> np.ndarray | None:
    """The metric f32[C] at the last round, or at the one that the run chose."""
    if last:
        return client_values(run, metric)
    chosen = run.summary.get("chosen_on_validation") or {}
    return client_values(run, metric, round_=chosen.get("round", -1))


def _find_baseline(
    run: Result, runs: Sequence[Result], is_baseline: Callable[[Experiment], bool]
) -> Result | None:
    """The run of a baseline on the same data and seed, with the most equal settings.

    A run of this baseline has none of its own kind.
    """
    if is_baseline(run.experiment):
        return None
    candidates = [
        other
        for other in runs
        if is_baseline(other.experiment)
        and other.experiment.seed == run.experiment.seed
        and other.partition["sha256"] == run.partition["sha256"]
    ]
    own = vars(run.experiment).values()
    return max(
        candidates,
        key=lambda other: sum(map(operator.eq, own, vars(other.experiment).values())),
        default=None,
    )
