"""Examples of the server in a sweep: those that its runs have."""

import numpy as np
import pytest

import tiny
from pfljax import run
from pfljax.runs.folder import read_arrays
from pfljax.simulate.federation import build_federation
from pfljax.sweep import sweep

FEDMD = "fedmd:subset=20,pretrain_own_epochs=1,public_batch_size=10"
ASKED = tiny.TINY.replace(
    model="logistic", rounds=2, devices=1, public=0.1, momentum=0.0
)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["feddf:server_steps=20,server_lr=0.1", FEDMD])
def test_a_sweep_trains_on_the_servers_examples_as_its_runs_do(algorithm, tmp_path):
    asked = ASKED.replace(algorithm=algorithm)
    results = sweep(asked, {"seed": [0, 1]}).results
    run(asked.replace(seed=1, out=str(tmp_path)), quiet=True, report=False)
    alone = read_arrays(tmp_path / "clients.npz")
    name = "personal/test/loss"
    np.testing.assert_allclose(results[1].metrics[name], alone[name], atol=1e-5)


@pytest.mark.slow
def test_servers_examples_of_ones_own_federation_are_trained_on():
    feddf = ASKED.replace(algorithm="feddf:server_steps=20,server_lr=0.1")
    # Without steps, or without examples to take them on, it is FedAvg.
    fedavg = ASKED.replace(algorithm="feddf:server_steps=0")

    def made(seed):
        federation, _ = build_federation(ASKED.replace(seed=seed))
        return federation

    def losses(experiment):
        runs = sweep(experiment, {"seed": [0]}, federation=made)
        return runs.results[0].metrics["server/test/loss"]

    assert np.abs(losses(feddf) - losses(fedavg)).max() > 1e-2
