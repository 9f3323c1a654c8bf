"""FLOPs of a local step of a run's own model, from its settings alone."""

import pytest

import tiny
from pfljax.bench import of_run
from pfljax.runs import config, folder

ROW = 64  # pixels of a digit
BATCH = tiny.TINY.training.batch_size


def begun(path, **settings):
    """A run folder of which there are the settings alone."""
    experiment = tiny.TINY.replace(out=str(path), **settings)
    path.mkdir()
    folder.write_json(path / "config.json", config.to_dict(experiment))
    return path


def products(*layers):
    """Of the forward pass and both gradients; the rows need none."""
    forward = sum(a * b for a, b in layers)
    a, b = layers[0]
    return 2 * BATCH * (3 * forward - a * b)


def test_a_step_has_the_products_of_each_model_that_is_trained(tmp_path):
    logistic = products((ROW, 10))
    fedavg = begun(tmp_path / "fedavg", algorithm="fedavg", model="logistic")
    flops = of_run.client_step(fedavg)
    assert flops["products"] == logistic
    assert logistic < flops["xla"] < 2 * logistic
    ditto = begun(tmp_path / "ditto", algorithm="ditto", model="logistic")
    assert of_run.client_step(ditto)["products"] == 2 * logistic
    code, text, _ = tiny.main("bench", fedavg, ditto)
    assert code == 0
    assert f"| {fedavg} | {logistic / 1e6:.3f} |" in text
    assert f"| {ditto} | {2 * logistic / 1e6:.3f} |" in text


def test_a_workload_among_runs_is_told(tmp_path):
    run = begun(tmp_path / "run", algorithm="fedavg", model="logistic")
    code, _, errors = tiny.main("bench", run, "W1")
    assert code == 2
    assert "workload" in errors
    assert errors.count("\n") == 1


@pytest.mark.slow
def test_of_several_architectures_it_is_the_mean_over_clients(tmp_path):
    both = begun(
        tmp_path / "both",
        algorithm="lg_fedavg",
        model="auto",
        models="mlp:hidden=(8,4) mlp:hidden=(4,)",
    )
    each = (products((ROW, 8), (8, 4), (4, 10)), products((ROW, 4), (4, 10)))
    # Six clients have the two in turn.
    assert of_run.client_step(both)["products"] == sum(each) / 2
