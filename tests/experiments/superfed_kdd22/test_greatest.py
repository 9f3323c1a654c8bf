"""The numbers of SuPerFed other than the accuracy."""

import importlib

import numpy as np
import pytest

from pfljax import Experiment
from pfljax.evaluation import over_clients


def load():
    return importlib.import_module("protocol").greatest


def path_of_four():
    path = np.zeros((4, 11))
    path[0, 3] = path[1, 7] = 1
    path[2, [3, 6]] = 1  # a tie goes to the smaller lambda, as torch's argmax
    return path


def test_superfeds_code_takes_the_greatest_over_all_that_is_best_for_somebody():
    path = path_of_four()
    path[3] = np.nan  # without test examples, it is nobody
    metric = np.arange(44.0).reshape(4, 11)
    metric[1] *= -1
    metric[0, 6] = 100  # of the tie's greater lambda
    assert load().greatest_of_best(path, metric).tolist() == [7, -14, 29, 40]
    own = over_clients.pick_lambda(path[:3], path[:3])
    assert load().greatest_of_best(path, path)[:3].tolist() == own.tolist()


def test_rows_of_every_seed_are_kept_beside_the_sweep(tmp_path):
    swept = importlib.import_module("shared.swept")
    greatest, rng = load(), np.random.default_rng(0)
    path = {"test/accuracy": path_of_four(), "test/loss": rng.random((4, 11))}
    path["validation/loss"] = rng.random((4, 11))
    path["test/ensemble/accuracy"] = rng.random(4)  # of all lambdas together
    size, at = {"test": np.full(4, 7)}, np.array([2, 4])
    lost = path | {"test/loss": np.full((4, 11), np.nan)}
    for seed, own in ((0, path), (1, lost), (2, {})):
        result = swept.Result({"seed": seed}, at, np.zeros(4), {}, own, size)
        greatest.keep(tmp_path, swept.Sweep(Experiment(), {"seed": [seed]}, [result]))
    found = {(r["seed"], r["metric"]): r for r in greatest.read(tmp_path)}
    assert set(found) == {(s, m) for s in "01" for m in ("accuracy", "loss")}
    row = found["0", "loss"]
    worst = greatest.greatest_of_best(path["test/accuracy"], path["test/loss"])
    assert row["mean"] == pytest.approx(worst.mean())
    assert (row["round"], row["lambda"]) == (4, "superfed-code")
    assert np.isnan(found["1", "loss"]["mean"])
