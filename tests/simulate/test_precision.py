"""The setting `precision`: one of a run, its programs and its folder; what it costs."""

import json

import numpy as np
import pytest
from flax import linen as nn

import tiny
from pfljax import Experiment, data, models, run
from pfljax.conformance.toy import assert_same
from pfljax.runs.folder import read_json, write_json
from pfljax.simulate import export, simulation
from pfljax.simulate.federation import build_federation

# Between the accuracies of float32 and bfloat16: see experiments/speed/REPORT.md.
BOUND = 0.01


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())[0]


@pytest.mark.slow
def test_a_precision_has_programs_of_its_own():
    federation, _ = build_federation(tiny.TINY)
    exact = simulation.simulation(tiny.TINY, federation)
    rough = simulation.simulation(tiny.TINY.replace(precision="bfloat16"), federation)
    assert exact is not rough
    assert (exact.task.precision, rough.task.precision) == ("float32", "bfloat16")
    states = [sim.shapes for sim in (exact, rough)]
    assert states[0] == states[1]


def test_a_run_goes_on_in_its_own_precision_alone(done):
    job = tiny.SEEN.replace(out=str(done), precision="bfloat16")
    code, _, errors = tiny.main("run", *tiny.options(job))
    assert code == 2
    assert "another config (precision: float32 -> bfloat16); choose" in errors


@pytest.mark.slow
def test_a_folder_of_before_precision_goes_on_in_float32(done, tmp_path):
    older = tiny.unfinished(done, tmp_path / "older")
    file = older / "config.json"
    nested = read_json(file)
    assert nested.pop("precision") == "float32"
    nested["out"] = str(older)
    write_json(file, nested)
    code, _, errors = tiny.main("resume", older)
    assert code == 0, errors
    assert "resuming from round 2 of 4" in errors
    # The summary has a checksum of the settings as they were written.
    tiny.assert_same_arrays(done / "clients.npz", older / "clients.npz")
    assert_same(tiny.last_state(done), tiny.last_state(older))


def network():
    body = nn.Sequential([nn.Dense(4), nn.relu])
    return models.Network(body, nn.Dense(3))


def mine():
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    arrays = data.from_arrays(x, np.arange(60) % 3, name="mine")
    return data.federate(arrays, "iid", num_clients=3, seed=0)


@pytest.mark.slow
def test_a_model_of_ones_own_brings_its_precision(tmp_path):
    rough = models.task(network(), (3,), precision="bfloat16")
    exact = models.task(network(), (3,))
    job = Experiment(model="mine", out=str(tmp_path), rounds=1, epochs=1, cohort=2)
    with pytest.raises(ValueError, match="precision is 'tf32'; expected 'bfloat16'"):
        run(job.replace(precision="tf32"), mine(), task=rough)
    run(job, mine(), task=rough, report=False, quiet=True)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["precision"] == "bfloat16"
    with pytest.raises(ValueError, match="'bfloat16'; expected 'float32'"):
        export.server_model(tmp_path, mine(), exact)
    kernel = export.server_model(tmp_path, mine(), rough)["head"]["kernel"]
    assert kernel.dtype == np.float32


@pytest.mark.slow
def test_accuracy_in_bfloat16_is_that_of_float32(tmp_path):
    """20 rounds on the digits, of 20 clients with two classes each, three seeds."""
    for seed in range(3):
        reached = []
        for precision in ("float32", "bfloat16"):
            job = Experiment(
                "ditto",
                rounds=20,
                eval_every=20,
                precision=precision,
                seed=seed,
                out=str(tmp_path / f"{precision}-{seed}"),
            )
            reached.append(run(job, quiet=True, report=False))
        exact, rough = reached
        assert exact.last.records != rough.last.records
        for view in ("server", "personal"):
            accuracies = [getattr(each, view).test.accuracy for each in (exact, rough)]
            assert abs(np.subtract(*accuracies)) < BOUND
