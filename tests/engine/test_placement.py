"""A run whose clients are pinned to two devices equals the same run on one."""

import json
import subprocess
import sys

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
offload_programs.BLOCK = int(sys.argv[2])  # clients evaluated in one call
rng = np.random.default_rng(0)
x, y = rng.normal(size=(120, 4)), np.arange(120) % 3
official = (np.arange(120) % 6 == 0).astype(int)
arrays = data.from_arrays(x, y, official=official)
people = data.federate(
    arrays, "dirichlet", num_clients=8, seed=1,
    params={"alpha": 1.0}, validation=0.2, test_from=sys.argv[3],
)
for fields in json.loads(sys.argv[1]):
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


def both(path, block, test_from, base=BASE):
    """clients.npz and the last records, of the run on one device and the pinned one."""
    runs = [
        base | {"out": str(path / "one"), "devices": 1},
        base | {"out": str(path / "home"), "devices": 2, "pin_clients": True},
    ]
    given = json.dumps(runs), str(block), test_from
    env = tiny.environment(path / "cache")
    subprocess.run([sys.executable, "-c", PROGRAM, *given], env=env, check=True)
    for fields in runs:
        out = Experiment(**fields).folder
        last = folder.read_json(path / out / "summary.json")["last"]["evaluations"]
        yield folder.read_arrays(path / out / "clients.npz"), last


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "test_from"),
    [(100, "official_classes"), (2, "official"), (3, "official")],
)
def test_a_run_with_pinned_clients_equals_one_on_one_device(tmp_path, block, test_from):
    (one, records), (pinned, pinned_records) = both(tmp_path, block, test_from)
    assert_alike(one, records, pinned, pinned_records)
    assert not np.allclose(one["personal/test/loss"], one["server/test/loss"])


@pytest.mark.slow
@pytest.mark.parametrize("block", [100, 2])
def test_pinned_architectures_equal_those_on_one_device(tmp_path, block):
    (one, records), (pinned, pinned_records) = both(tmp_path, block, "clients", SEVERAL)
    assert_alike(one, records, pinned, pinned_records)


def assert_alike(one, records, pinned, pinned_records):
    """The same arrays and records, to rounding."""
    assert sorted(one) == sorted(pinned)
    for name in one:
        np.testing.assert_allclose(pinned[name], one[name], rtol=1e-5, atol=1e-5)
    assert one["personal/test/accuracy"].shape == (2, 7)  # 1 of 8 is held out
    assert len(records) == len(pinned_records)
    for ours, theirs in zip(pinned_records, records, strict=True):
        for name, figures in theirs["metrics"].items():
            assert ours["metrics"][name] == pytest.approx(figures, abs=1e-5)


def test_pinned_clients_need_the_device_store():
    with pytest.raises(ValueError, match="pin_clients needs state_storage 'device'"):
        checks.check(tiny.TINY.replace(pin_clients=True, state_storage="disk"))
