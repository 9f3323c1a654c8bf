"""Test accuracies client by client, and how many fare worse than alone.

Every function gives None where the run has not kept the array.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation import fairness
from pfljax.report.runs import (
    Run,
    judged_records,
    number,
    personal_is_server,
    read_run,
)
from pfljax.runtime.files import FileError

LAST = "last"
CHOSEN = "chosen_on_validation"
HALF = "half"
ORACLE = "oracle_chosen_on_test"
ENSEMBLE = "ensemble"


class Which(NamedTuple):
    """Which parameters a record judges: the fields of the record."""

    model: str
    finetune: int
    when: str


def which_of(record: dict[str, Any]) -> Which:
    """What an evaluation record judges."""
    return Which(
        model=record["model"], finetune=record["finetune"], when=record["when"]
    )


def judged_clients(run: Run) -> np.ndarray | None:
    """Accuracy f32[C] at the last round of the model that the run is judged by."""
    records = judged_records(run.summary[LAST]["evaluations"])
    if not records:
        return None
    return client_accuracy(run, which_of(records[0]), LAST)


def client_accuracy(run: Run, which: Which, at: str) -> np.ndarray | None:
    """Accuracy f32[C] behind a record, at the last or the chosen round."""
    if which.model == "server":
        # Of a fine-tuned server the run keeps statistics, and no array.
        if which.finetune:
            return None
        return _at_moment(run, "server", at)
    view = "personal"
    if which.when == "after local training":
        view = "trained"
    return _at_moment(run, view, at)


def mixture_accuracy(run: Run, choice: str) -> np.ndarray | None:
    """Accuracy f32[C] with lambda set to 1/2, chosen client by client, or all."""
    if choice == ENSEMBLE:
        return run.per_client.get("mixture/test/ensemble/accuracy")
    test = run.per_client.get("mixture/test/accuracy")
    validation = run.per_client.get("mixture/validation/accuracy")
    if test is None:
        return None
    # Rounded: .4 and .6 are equally far from 1/2, and in float32 are not.
    distance = np.abs(run.per_client["mixture/lambda"] - 0.5).round(3)
    if choice == HALF:
        return test[:, distance.argmin()]
    if choice == ORACLE:
        return test.max(axis=1)
    if validation is None:
        return None
    # argmax takes the first of equals: the lambda nearest 1/2, then the smaller one.
    order = np.argsort(distance, kind="stable")
    by_preference = np.asarray(validation)[:, order]
    best = order[np.argmax(by_preference, axis=1)]
    chosen = np.take_along_axis(test, best[:, None], axis=1)
    return chosen[:, 0]


def fairness_of(
    run: Run, runs: Sequence[Run], accuracy: np.ndarray | None, at: str
) -> dict[str, float]:
    """Figures over clients of `accuracy` f32[C] by name; none without the array.

    The accuracy of "local" comes from one of the `runs`, or the share of clients worse
    off from the run's own summary. It is NaN for local itself.
    """
    if accuracy is None:
        return {}
    alone = None
    is_local = run.config["algorithm"] == "local"
    baseline = None if is_local else local_baseline(run, runs)
    if baseline is not None:
        alone = _at_moment(baseline, "personal", at)
    before = None
    # Local training has no model that it makes personal, and neither has FedAvg.
    if not is_local and not personal_is_server(run):
        before = _at_moment(run, "server", at)
    values = fairness.figures(accuracy, alone, before)
    # A run that was given a baseline has the share, of its last round alone.
    if alone is None and at == LAST and not is_local:
        values["worse_than_local"] = number(run.summary.get("worse_than_local"))
    return values


def local_baseline(run: Run, runs: Sequence[Run]) -> Run | None:
    """The run of "local" on the same rows and seed, the most alike where several are.

    Same rows: the same SHA-256 of the partition.
    """
    candidates = []
    for other in runs:
        is_local = other.config["algorithm"] == "local"
        same_seed = other.config["seed"] == run.config["seed"]
        same_rows = other.partition["sha256"] == run.partition["sha256"]
        if is_local and same_seed and same_rows:
            candidates.append(other)

    def shared_settings(other: Run) -> int:
        shared = 0
        for name, value in run.config.items():
            shared += other.config.get(name) == value
        return shared

    return max(candidates, key=shared_settings, default=None)


def recorded_baselines(runs: Sequence[Run]) -> list[Run]:
    """The runs of local training that `runs` were compared with, where still there.

    One that is of other rows by now is no `local_baseline` of theirs.
    """
    # A dict keeps the order of the runs; a set would not.
    folders = dict.fromkeys(run.config.get("baseline") for run in runs)
    baselines = []
    for folder in folders:
        if folder is not None:
            # A page is of its own run: what has become of another does not stop it.
            with contextlib.suppress(ValueError, FileError):
                baselines.append(read_run(folder))
    return baselines


def moment_of(run: Run, at: str) -> dict[str, Any] | None:
    """{"round", "evaluations"} of the last or the chosen round."""
    return run.summary.get(at)


def _at_moment(run: Run, view: str, at: str) -> np.ndarray | None:
    """Accuracy f32[C] of a view of the models at the last or the chosen round."""
    accuracy = run.per_client.get(f"{view}/test/accuracy")
    moment = moment_of(run, at)
    if accuracy is None or moment is None:
        return None
    evaluations = np.flatnonzero(run.per_client["round"] == moment["round"])
    if not len(evaluations):
        return None
    return accuracy[evaluations[0]]
