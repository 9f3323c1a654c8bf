"""Detection of classes that a client does not hold, from the setting to the report."""

import json

import jax
import numpy as np
import pytest

import tiny
from pfljax import run
from pfljax.core.types import Batch
from pfljax.evaluation.uncertainty import select_ood
from pfljax.runs.folder import read_arrays
from pfljax.simulate import simulation
from pfljax.simulate.export import load_state
from pfljax.simulate.federation import build_federation

ASKED = tiny.TINY.replace(rounds=2, ood_examples=30)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The federation of a run with detection."""
    path = tmp_path_factory.mktemp("run")
    run(ASKED.replace(out=str(path)), quiet=True, report=False)
    return path


@pytest.mark.slow
def test_nothing_else_changes_by_a_bit(asked, tmp_path):
    run(ASKED.replace(ood_examples=0, out=str(tmp_path)), quiet=True, report=False)
    found, plain = (read_arrays(path / "clients.npz") for path in (asked, tmp_path))
    added = {name for name in found if name.endswith("auroc")}
    assert set(found) == {*plain, *added}
    for model in ("server", "personal", "mixture", "mixture/test/ensemble"):
        assert any(name.startswith(model) for name in added)
    for name, values in plain.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.slow
def test_the_servers_model_by_numpy(asked):
    found = read_arrays(asked / "clients.npz")["server/test/auroc"][-1]
    federation, _ = build_federation(ASKED)
    task = simulation.simulation(ASKED, federation).task
    server = load_state(asked)[2].server

    def entropy(x):
        logits = jax.jit(task.predict)(server, Batch.full(x))
        p = np.asarray(jax.nn.softmax(logits), np.float64)
        return -(p * np.log(p)).sum(1)

    pool, test = federation.test.examples, federation.test
    others, held = select_ood(federation.train, test, federation.num_classes, 30)
    assert len(others.y) == 30
    of_others = entropy(others.x)
    for k, (at, size) in enumerate(zip(test.offset, test.size, strict=True)):
        own = entropy(pool.x[at : at + size])[held[k][pool.y[at : at + size]]]
        ood = of_others[~held[k][others.y]]
        wanted = (ood[:, None] > own).mean()
        assert found[k] == pytest.approx(wanted, abs=0.5 / own.size / ood.size)


@pytest.mark.slow
def test_the_summary_has_its_figures(asked):
    summary = json.loads((asked / "summary.json").read_text())
    arrays = read_arrays(asked / "clients.npz")
    (record,) = [
        record
        for record in summary["last"]["evaluations"]
        if (record["model"], record["split"], record["clients"])
        == ("personal", "test", "all")
    ]
    mean = record["metrics"]["auroc"]["mean"]
    assert mean == pytest.approx(np.nanmean(arrays["personal/test/auroc"][-1]))
    ensemble = summary["mixture"]["ensemble"]
    assert ensemble["brier"]["mean"] == pytest.approx(
        arrays["mixture/test/ensemble/brier"].mean()
    )
