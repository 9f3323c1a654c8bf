"""Runs of a pretrained model with adapters."""

import jax
import numpy as np
import pytest

import tiny
from pfljax import run
from pfljax.core import tree
from pfljax.core.types import Batch
from pfljax.simulate import begin
from pfljax.simulate.build import build
from pfljax.simulate.export import load_task, personal_model, server_model
from pfljax.simulate.personal import personal_models

SETTINGS = tiny.TINY.replace(algorithm="fedavg", rounds=1, unseen=0.34)
X = Batch.full(np.arange(128.0).reshape(2, 8, 8, 1) % 17)
KERNELS = (64 + 8) + (8 + 10)  # sides of both layers


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    out = tmp_path_factory.mktemp("source") / "run"
    return run(SETTINGS.replace(out=str(out)), quiet=True, report=False).folder


def adapt(source, model="lora:model='mlp:hidden=(8,)',rank=2", **settings):
    return SETTINGS.replace(model=model, initial=str(source), **settings)


def test_a_pretrained_model_is_adapted_and_exported(source, tmp_path):
    job = adapt(source, algorithm="partial:private=lora_b", out=str(tmp_path / "run"))
    sim, data = build(job)
    before = tree.paths(server_model(source))
    first = sim.evaluate(sim.init(jax.random.key(0)), data).personal.test.loss
    result = run(job, quiet=True, report=False)
    pretrained, _ = build(SETTINGS.replace(initial=str(source)))
    state = pretrained.init(jax.random.key(0))
    wanted = pretrained.evaluate(state, data).personal.test.loss
    np.testing.assert_array_equal(first, wanted)
    # Only A is sent, and both are trained.
    assert result.summary["traffic"]["up_per_client"] == 4 * 2 * (64 + 8)
    assert result.summary["traffic"]["down_per_client"] == 4 * 2 * (64 + 8)
    whole = 64 * 8 + 8 + 8 * 10 + 10
    assert result.summary["parameters"] == {"trained": 2 * KERNELS, "model": whole}
    model = personal_model(job.out, 1)
    stacked = tree.paths(personal_models(job.out))
    for name, leaf in tree.paths(model).items():
        moved = not np.array_equal(leaf, before[name])
        assert moved == name.endswith("kernel")
        np.testing.assert_allclose(stacked[name][1], leaf, rtol=1e-6)
    logits = load_task(job.out).predict(tree.paths(model), X)
    wanted = load_task(source).predict(model, X)
    np.testing.assert_allclose(logits, wanted, rtol=1e-6)


def test_clients_have_ranks_of_their_own(source, tmp_path):
    ranks = [f"lora:model='mlp:hidden=(8,)',rank={rank}" for rank in (1, 3)]
    job = adapt(source, "auto", models=ranks, algorithm="flexlora")
    job = job.replace(out=str(tmp_path / "run"))
    result = run(job, quiet=True, report=False)
    assert result.summary["traffic"]["up_per_client"] == 4 * 2 * KERNELS
    assert result.summary["parameters"]["trained"] == 2 * KERNELS
    begun = tree.paths(server_model(source))
    for model, most in (
        (personal_model(job.out, 0), 1),
        (personal_model(job.out, 1), 3),
        (server_model(job.out), 3),
    ):
        change = (
            tree.paths(model)["body/layers_1/kernel"] - begun["body/layers_1/kernel"]
        )
        assert np.linalg.matrix_rank(change, tol=1e-5) == most


def test_states_of_clients_have_no_frozen_leaf(source):
    state = build(adapt(source, algorithm="ditto"))[0].init(jax.random.key(0))
    assert tree.nbytes(state.server) == 4 * 2 * KERNELS
    assert tree.nbytes(state.clients) == 4 * 4 * 2 * KERNELS


def test_kernels_of_factors_start_from_no_other_run(source):
    job = adapt(source, "fedpara:model='mlp:hidden=(8,)'")
    with pytest.raises(ValueError, match=r"initial has body/layers_1/kernel, .* fact"):
        begin.check_method(job, None, None)
