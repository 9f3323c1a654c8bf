"""A run whose clients are pinned to two devices equals the same run on one."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tiny
from pfljax import Experiment
from pfljax.runs import checks, folder

PROGRAM = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
from pfljax import Experiment, data, run
from pfljax.engine import offload_programs
from pfljax.simulate import simulation
rng = np.random.default_rng(0)
x, y = rng.normal(size=(120, 4)), np.arange(120) % 3
official = (np.arange(120) % 6 == 0).astype(int)
arrays = data.from_arrays(x, y, official=official)
for block, test_from, runs in json.loads(sys.argv[1]):
    offload_programs.BLOCK = block  # clients evaluated in one call
    simulation._simulation.cache_clear()
    people = data.federate(
        arrays, "dirichlet", num_clients=8, seed=1,
        params={"alpha": 1.0}, validation=0.2, test_from=test_from,
    )
    for fields in runs:
        run(Experiment(**fields), people, quiet=True, report=False)
"""
BASE = {
    "algorithm": "superfed:start=0.0", "model": "mlp:hidden=(5,)",
    "cohort": 3, "rounds": 4, "eval_every": 2, "epochs": 1, "unseen": 0.2,
}  # fmt: skip


# Of the clients that train five have the first model; the newcomer has the second.
SEVERAL = BASE | {
    "algorithm": "lg_fedavg", "model": "auto",
    "models": "mlp:hidden=(5,3) mlp:hidden=(4,3) mlp:hidden=(5,3)",
}  # fmt: skip


CASES = {
    "whole": (100, "official_classes", BASE),
    "in blocks": (3, "official", BASE),
    "several in blocks": (2, "clients", SEVERAL),
}


def jobs(path, base):
    """A run on one device, and the same with its clients pinned to two."""
    return [
        base | {"out": str(path / "one"), "devices": 1},
        base | {"out": str(path / "home"), "devices": 2, "pin_clients": True},
    ]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The folder of the runs of all CASES, by one process."""
    path = tmp_path_factory.mktemp("pinned")
    cases = [
        (block, test_from, jobs(path / name, base))
        for name, (block, test_from, base) in CASES.items()
    ]
    env = tiny.environment(path / "cache")
    given = [sys.executable, "-c", PROGRAM, json.dumps(cases)]
    subprocess.run(given, env=env, check=True)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_run_with_pinned_clients_equals_one_on_one_device(played, name):
    _, _, base = CASES[name]
    one, pinned = (
        Path(Experiment(**fields).folder) for fields in jobs(played / name, base)
    )
    assert_alike(one, pinned)


def assert_alike(one, pinned):
    """The same arrays and records, to rounding."""
    arrays, others = (folder.read_arrays(out / "clients.npz") for out in (one, pinned))
    assert sorted(arrays) == sorted(others)
    for name, values in arrays.items():
        np.testing.assert_allclose(others[name], values, rtol=1e-5, atol=1e-5)
    assert arrays["personal/test/accuracy"].shape == (2, 7)  # 1 of 8 is held out
    if "server/test/loss" in arrays:  # the models of superfed's clients are their own
        assert not np.allclose(arrays["personal/test/loss"], arrays["server/test/loss"])
    records = [
        folder.read_json(out / "summary.json")["last"]["evaluations"]
        for out in (pinned, one)
    ]
    for ours, theirs in zip(*records, strict=True):
        for name, figures in theirs["metrics"].items():
            assert ours["metrics"][name] == pytest.approx(figures, abs=1e-5)


def test_pinned_clients_need_the_device_store():
    with pytest.raises(ValueError, match="pin_clients needs state_storage 'device'"):
        checks.check(tiny.TINY.replace(pin_clients=True, state_storage="disk"))
