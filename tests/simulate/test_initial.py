"""Runs that start from the model of another run."""

import shutil

import jax
import numpy as np
import pytest

import tiny
from pfljax import run
from pfljax.core import tree
from pfljax.simulate.build import build
from pfljax.simulate.evaluation import newcomer_states
from pfljax.simulate.export import export, load_state, server_model

SETTINGS = tiny.TINY.replace(algorithm="fedavg", rounds=1, unseen=0.34)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    out = tmp_path_factory.mktemp("source") / "run"
    return run(SETTINGS.replace(out=str(out)), quiet=True, report=False).folder


def test_all_first_models_are_that_of_the_other_run(source, tmp_path):
    model = tree.paths(server_model(source))
    out = str(tmp_path / "run")
    experiment = SETTINGS.replace(algorithm="ditto", initial=str(source), out=out)
    state = build(experiment)[0].init(jax.random.key(3))
    result = run(experiment, quiet=True, report=False, traced=["lr"])
    sim, _, newest = load_state(result.folder)
    newcomers = newcomer_states(sim, newest, np.arange(2))
    for name, leaf in model.items():
        np.testing.assert_array_equal(tree.paths(state.server)[name], leaf)
        for clients in (state.clients, newcomers):
            first = tree.paths(clients)[name]
            np.testing.assert_array_equal(first, np.broadcast_to(leaf, first.shape))


@pytest.mark.slow
def test_a_run_goes_on_without_the_other_run(source, tmp_path):
    copy = shutil.copytree(source, tmp_path / "copy")
    export(copy, None, tmp_path / "model.npz")
    results = []
    for initial in ("copy", "model.npz"):
        out = str(tmp_path / f"from_{initial}")
        begun = SETTINGS.replace(initial=str(tmp_path / initial), out=out)
        if initial == "copy":
            run(begun, quiet=True, report=False)
            shutil.rmtree(copy)
        result = run(begun.replace(rounds=2), quiet=True, report=False)
        results.append(tree.paths(load_state(result.folder)[2].server))
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"initial": "missing"}, "initial is 'missing'; expected a run folder, or"),
        ({"initial": __file__}, "test_initial.py is cut, or is no file of `pfljax exp"),
        ({"model": "mlp:hidden=(3,)"}, "initial is another model: .* give a run with"),
        (
            {"model": "auto", "models": ("mlp:hidden=(8,)", "logistic")},
            "initial is another model: .* give a run with",
        ),
    ],
)
def test_what_does_not_fit(source, tmp_path, settings, message):
    out = tmp_path / "run"
    experiment = SETTINGS.replace(**{"initial": str(source), **settings}, out=str(out))
    with pytest.raises(ValueError, match=message):
        run(experiment, quiet=True)
    assert not out.exists()
