import numpy as np
import pytest

from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import toy
from pfljax.core.types import Local
from pfljax.evaluation import records

TASK, LOCAL = toy.classifier(), Local(0.3, batch_size=4)


def test_records_name_model_clients_and_time():
    accuracy = np.array([0.1, 0.2, 0.6])
    names = ("server/test/accuracy", "trained/test/accuracy")
    values = dict.fromkeys(names, accuracy)
    method = fedavg(TASK, LOCAL, finetune=5)
    sizes = {"test": np.array([1, 1, 2])}
    groups = {"all": np.arange(3), "unseen": np.array([], int), "drawn": np.array([2])}
    lines = records.records(method, values, sizes, groups)
    of_server, of_trained = lines[:2], lines[2:]
    for two in (of_server, of_trained):
        assert [(r["clients"], r["count"]) for r in two] == [("all", 3), ("drawn", 1)]
    assert (of_trained[0]["model"], of_trained[0]["finetune"]) == ("personal", 5)
    assert of_trained[0]["when"] == "after local training"
    assert of_trained[0]["metrics"]["accuracy"]["weighted"] == pytest.approx(0.375)
    assert of_trained[1]["metrics"]["accuracy"]["mean"] == 0.6
    assert (of_server[0]["model"], of_server[0]["finetune"]) == ("server", 0)


def test_lambda_is_chosen_on_validation_examples_or_by_the_oracle():
    test = {"mixture/test/accuracy": np.tile(np.arange(11) / 10, (2, 1))}
    paths = test | {"mixture/validation/accuracy": np.eye(11)[[2, 4]]}
    paths |= {"mixture/test/ensemble/accuracy": np.array([0.6, 0.8])}
    found = records.mixture_summary(paths, np.ones(2))
    means = {name: figures["accuracy"]["mean"] for name, figures in found.items()}
    expected = {"half": 0.5, "chosen_on_validation": 0.3, "oracle_chosen_on_test": 1.0}
    assert means == pytest.approx(expected | {"ensemble": 0.7})
    without = records.mixture_summary(test, np.ones(2))
    assert without["chosen_on_validation"] is None
