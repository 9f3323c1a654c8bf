"""Results by name: of a run, of a folder, and what is told of what is not there."""

import copy
import math
import pickle

import pytest

import pfljax
from pfljax.runs.folder import FolderError, write_json
from pfljax.runs.judged import NEWEST, Evaluation
from pfljax.runs.result import Result


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
    with pytest.raises(ValueError, match=r"of \('others', .*known: \('all', 'after l"):
        evaluation.of("others")


def test_what_is_missing_is_told_with_what_is_there(tmp_path):
    found = Result(tmp_path, SUMMARY)
    with pytest.raises(AttributeError, match=r"no 'server': the method .*, personal$"):
        found.server  # noqa: B018
    with pytest.raises(AttributeError, match=r"'best': no client has validation rows"):
        found.best  # noqa: B018
    with pytest.raises(AttributeError, match=r"'acuracy'; there is figures, accuracy"):
        found.personal.test.acuracy  # noqa: B018
    assert not hasattr(found.last.of("unseen").personal, "validation")
    with pytest.raises(AttributeError):
        found.rounds = 7


def test_a_result_is_shown_as_a_table(tmp_path):
    chosen = SUMMARY | {"chosen_on_validation": LAST | {"round": 4}}
    first, *lines = repr(Result(tmp_path, chosen)).splitlines()
    assert first == "mine, seed 3, 6 rounds; best on validation rows: round 4"
    assert [line.split() for line in lines] == [
        ["model", "rows", "accuracy", "std", "worst10", "loss"],
        ["personal", "test", "0.7500", "0.1000", "0.5000", "nan"],
        ["personal", "validation", "0.5000", "0.1000", "0.5000", "nan"],
    ]


def test_a_folder_has_its_result_and_an_unfinished_one_says_so(tmp_path):
    with pytest.raises(FolderError, match="not a run folder"):
        pfljax.result(tmp_path)
    old = {k: v for k, v in RECORDS[0].items() if k != "when"}  # of an older pfljax
    write_json(
        tmp_path / "summary.json", SUMMARY | {"last": LAST | {"evaluations": [old]}}
    )
    found = pfljax.result(str(tmp_path))
    assert (found.rounds, found.personal.test.accuracy) == (6, 0.75)
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert repr(other) == repr(found)
