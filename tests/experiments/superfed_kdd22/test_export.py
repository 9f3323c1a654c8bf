"""A model of two networks is exported as it was evaluated."""

import importlib

import jax
import numpy as np
import pytest

from pfljax import Experiment
from pfljax.core.types import Batch
from pfljax.simulate import export
from pfljax.simulate.run import run


@pytest.mark.slow
def test_a_model_of_two_networks_predicts_as_it_was_evaluated(tmp_path):
    form = importlib.import_module("forms").form("apfl_fedtorch")
    job = Experiment(algorithm=form, model="logistic", clients=3, cohort=3)
    run(job.replace(rounds=1, epochs=1, out=str(tmp_path / "run")))
    sim, federation, state = export.load_state(tmp_path / "run")
    export.export(tmp_path / "run", 1, tmp_path / "own.npz")
    batch = Batch.full(federation.test.examples.x[:5])
    found = export.load_task(tmp_path / "run").predict(
        export.load_params(tmp_path / "own.npz"), batch
    )
    export.export(tmp_path / "run", None, tmp_path / "server.npz")
    server = export.load_params(tmp_path / "server.npz")
    own = jax.tree.map(lambda leaf: leaf[1], state.clients)
    w, v = (sim.task.predict(params, batch) for params in (state.server, own.v))
    wanted = own.alpha * v + (1 - own.alpha) * w
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert not np.allclose(w, v)
    of_server = export.load_task(tmp_path / "run").predict(server, batch)
    np.testing.assert_allclose(of_server, w, rtol=1e-5, atol=1e-6)
