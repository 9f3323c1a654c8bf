"""Results by name, of a run and of a folder, and errors for missing names."""

import copy
import math
import pickle

import numpy as np
import pytest

import pfljax
from pfljax.runs.folder import FolderError, write_arrays, write_json, write_partition
from pfljax.runs.result import NEWEST, Evaluation, Result


def record(model="personal", split="test", clients="all", mean=0.75, **fields):
    accuracy = {"mean": mean, "std": 0.1, "worst10": 0.5}
    metrics = {"accuracy": accuracy, "loss": {"mean": None}}
    fields = {"when": NEWEST} | fields
    return {
        "model": model, "split": split, "clients": clients, "metrics": metrics, **fields
    }  # fmt: skip


RECORDS = [
    record(),
    record(split="validation", mean=0.5),
    record(clients="unseen", mean=0.25),
    record(mean=1.0, when="after local training"),
]
LAST = {"round": 6, "evaluations": RECORDS}
SUMMARY = {"label": "mine", "seed": 3, "rounds": 6, "last": LAST}


def test_metrics_go_by_name():
    evaluation = Evaluation(6, RECORDS)
    assert evaluation.personal.test.accuracy == 0.75
    assert evaluation.personal.validation.accuracy == 0.5
    assert math.isnan(evaluation.personal.test.loss)  # None in JSON
    assert evaluation.personal.test.figures["accuracy"]["worst10"] == 0.5
    assert evaluation.of("unseen").personal.test.accuracy == 0.25
    trained = evaluation.of(when="after local training")
    assert trained.personal.test.accuracy == 1.0
    with pytest.raises(ValueError, match=r"no \('others', .*known: \('all', 'after l"):
        evaluation.of("others")


def test_what_was_not_evaluated_is_not_there(tmp_path):
    result = Result(tmp_path, SUMMARY)
    assert not hasattr(result, "server")
    assert not hasattr(result, "best")
    assert not hasattr(result.last.of("unseen").personal, "validation")


def test_a_result_is_shown_as_a_table(tmp_path):
    chosen = SUMMARY | {"chosen_on_validation": LAST | {"round": 4}}
    first, *lines = repr(Result(tmp_path, chosen)).splitlines()
    assert first == "mine, seed 3, 6 rounds; best on validation examples: round 4"
    assert [line.split() for line in lines] == [
        ["model", "examples", "accuracy", "std", "worst10", "loss"],
        ["personal", "test", "0.7500", "0.1000", "0.5000", "nan"],
        ["personal", "validation", "0.5000", "0.1000", "0.5000", "nan"],
    ]


def test_a_folder_has_its_result_and_an_unfinished_one_says_so(tmp_path):
    with pytest.raises(FolderError, match="not a run folder"):
        pfljax.result(tmp_path)
    write_json(tmp_path / "summary.json", SUMMARY)
    found = pfljax.result(str(tmp_path))
    assert (found.rounds, found.personal.test.accuracy) == (6, 0.75)
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert repr(other) == repr(found)


def test_metrics_of_clients_are_a_tidy_frame(tmp_path):
    """Not those of a mixture, a quantity or a size, whose arrays have other axes."""
    accuracy = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = {
        "round": np.array([2, 4]),
        "personal/test/accuracy": accuracy,
        "unseen:server/test/loss": np.float32([[7], [8]]),
        "mixture/test/accuracy": accuracy,
        "mixture/test/ensemble/accuracy": accuracy[0],
        "client/tau": accuracy,
        "train_size": accuracy[0],
    }
    write_arrays(tmp_path / "clients.npz", arrays)
    unseen = {"clients": [1]}
    manifest = {"client_names": ["a", "b", "d"], "clients": [0, 2, 3], "unseen": unseen}
    write_partition(tmp_path, manifest, {})
    frame = Result(tmp_path, SUMMARY).frame()
    assert list(frame) == [
        "round", "client", "unseen", "model", "split", "metric", "value"
    ]  # fmt: skip
    personal = [False, "personal", "test", "accuracy"]
    newcomer = [1, True, "server", "test", "loss"]
    assert frame.to_numpy().tolist() == [
        [2, "a", *personal, 0], [2, "b", *personal, 1], [2, "d", *personal, 2],
        [4, "a", *personal, 3], [4, "b", *personal, 4], [4, "d", *personal, 5],
        [2, *newcomer, 7], [4, *newcomer, 8],
    ]  # fmt: skip
