"""Runs whose clients have several architectures."""

import json
import re
import shutil

import numpy as np
import pytest

import tiny
from checkout import ROOT
from pfljax import Experiment, algorithms, run
from pfljax.conformance import suite
from pfljax.conformance.toy import assert_same
from pfljax.core import factories
from pfljax.core.types import Batch
from pfljax.runs import config
from pfljax.runs.folder import FolderError
from pfljax.runtime.files import StoreError
from pfljax.simulate import architectures
from pfljax.simulate.export import load_state, load_task, personal_model

MODELS = "mlp:hidden=(8,4) mlp:hidden=(5,4) mlp:hidden=(8,4)"
SMALL = tiny.TINY.replace(algorithm="lg_fedavg", models=MODELS, model="auto")


def finished(folder, **changes):
    job = SMALL.replace(out=str(folder), **changes)
    return job, run(job, quiet=True, report=False).summary


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(folder, summary) of a finished run."""
    folder = tmp_path_factory.mktemp("groups") / "whole"
    return folder, finished(folder)[1]


def test_equal_models_are_one_architecture():
    named = [str(choice) for choice in architectures.distinct_models(SMALL)]
    assert named == ["mlp:hidden=(8, 4)", "mlp:hidden=(5, 4)"]


def test_commas_and_spaces_stand_between_models():
    commas = SMALL.replace(models=MODELS.replace(" ", ","))
    assert config.digest(commas) == config.digest(SMALL)
    assert config.digest(SMALL) != config.digest(SMALL.replace(models=None))
    known = json.loads(json.dumps(config.to_dict(SMALL)))
    assert config.from_dict(known) == SMALL


@pytest.mark.slow
def test_a_run_goes_on_to_the_same_bits(tmp_path, whole):
    folder, _ = whole
    finished(tmp_path / "cut", rounds=2)
    finished(tmp_path / "cut")
    tiny.assert_same_run(folder, tmp_path / "cut")


@pytest.mark.slow
def test_states_in_a_store_are_those_of_the_devices(tmp_path, whole):
    folder, _ = whole
    finished(tmp_path / "run", state_storage="disk", rounds=2)
    kept = {file.name for file in (tmp_path / "run" / "clients").iterdir()}
    assert kept == {"0", "1"}
    finished(tmp_path / "run", state_storage="disk")
    tiny.assert_same_run(folder, tmp_path / "run")
    for client in range(6):
        stored = personal_model(tmp_path / "run", client)
        assert_same(stored, personal_model(folder, client))


@pytest.mark.slow
def test_a_lost_store_of_an_architecture_is_refused(tmp_path):
    finished(tmp_path / "run", state_storage="disk", rounds=2)
    clients = tmp_path / "run" / "clients"
    records = clients / "1" / "records.bin"
    records.write_bytes(bytes(records.stat().st_size))
    with pytest.raises(StoreError, match=r"the state of client . of those in .*/1 is"):
        finished(tmp_path / "run", state_storage="disk")
    (clients / "1" / "index.bin").write_bytes(bytes(2 * 3 * 8))
    with pytest.raises(StoreError, match="saved at round 2; delete the checkp"):
        finished(tmp_path / "run", state_storage="disk")
    shutil.rmtree(clients / "1")
    with pytest.raises(StoreError, match=r"clients/1 has no store\.json; put back"):
        finished(tmp_path / "run", state_storage="disk")


@pytest.mark.slow
def test_a_run_of_two_devices_goes_on_with_one(tmp_path):
    """Groups of 4 and 2 of 6 clients, of 5 and 3 of 8: their blocks are padded."""
    two = SMALL.replace(devices=2, out=str(tmp_path / "run"), clients=8)
    env = tiny.environment(tmp_path / "cache", JAX_NUM_CPU_DEVICES="2")
    done = tiny.command_line("run", *tiny.options(two), env=env)
    assert done.returncode == 0, done.stderr
    finished(tmp_path / "run", devices=1, rounds=6, clients=8)
    finished(tmp_path / "alone", devices=1, rounds=6, clients=8)
    theirs = np.load(tmp_path / "run" / "clients.npz")
    alone = np.load(tmp_path / "alone" / "clients.npz")
    np.testing.assert_allclose(
        theirs["personal/test/loss"], alone["personal/test/loss"], rtol=1e-3
    )


@pytest.mark.slow
def test_each_client_is_evaluated_with_its_own_model(whole):
    folder, _ = whole
    _, federation, _ = load_state(folder)
    arrays = np.load(folder / "clients.npz")
    test = federation.test
    for client in range(6):
        task = load_task(folder, client)
        span = slice(
            int(test.offset[client]), int(test.offset[client] + test.size[client])
        )
        batch = Batch.full(test.examples.x[span])
        logits = task.predict(personal_model(folder, client), batch)
        right = np.mean(np.argmax(logits, 1) == test.examples.y[span])
        assert right == pytest.approx(arrays["personal/test/accuracy"][-1, client])


@pytest.mark.slow
def test_newcomers_have_models_by_their_number(tmp_path):
    """And bodies of other depths share heads."""
    depths = "mlp:hidden=(8,4) mlp:hidden=(4,)"
    _, summary = finished(tmp_path / "run", unseen=0.2, models=depths)
    records = summary["last"]["evaluations"]
    assert {"all", "unseen"} <= {record["clients"] for record in records}
    for record in records:
        assert np.isfinite(record["metrics"]["loss"]["mean"])


BAD = {
    "unknown": ({"models": "mlp cnn9"}, "unknown models 'cnn9'"),
    "option": ({"models": "mlp:width=3"}, "models 'mlp': unknown parameter"),
    "more than clients": (
        {"models": ",".join(["mlp", "logistic"] * 4)},
        "models has 8 names, but 6 clients train",
    ),
    "both": ({"model": "mlp"}, "model is 'mlp' and models are set; set one of them"),
    "type": ({"models": 3}, "models is (3,); expected a name, or several"),
    "fedavg": (
        {"algorithm": "fedavg"},
        "fedavg cannot train these models together: what mlp:hidden=(5, 4) and "
        "mlp:hidden=(8, 4) send and share is not alike (the leaf ",
    ),
    "heads": ({"models": "mlp:hidden=(8,4) mlp:hidden=(8,5)"}, "models of one group"),
    "rows": (
        {"models": "mlp char_lstm"},
        "models has char_lstm: x has shape (1, 8, 8, 1), expected tokens",
    ),
    "proxy": ({"proxy": "cnn9"}, "unknown proxy 'cnn9'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(tmp_path, name):
    changes, said = BAD[name]
    with pytest.raises(ValueError, match=re.escape(said)):
        finished(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_checkpoint_of_other_groups_is_refused(tmp_path, whole):
    folder, _ = whole
    shutil.copytree(folder, tmp_path / "run")
    others = "mlp:hidden=(8,4) mlp:hidden=(6,4)"
    with pytest.raises(FolderError, match="models: "):
        finished(tmp_path / "run", models=others, rounds=6)


@pytest.mark.slow
def test_known_methods_take_several():
    known = []
    for name, factory in algorithms.methods().items():
        options = factories.options(factory).values()
        has_defaults = all(o.default is not o.empty for o in options)
        if has_defaults and suite.takes_several(factory, {}):
            known.append(name)
    assert {"local", "lg_fedavg", "feddf", "heterofl"} <= set(known)
    assert not {"fedavg", "ditto", "fedrep"} & set(known)
    assert Experiment().models == ()
    guide = (ROOT / "docs" / "models.md").read_text("utf-8")
    sentence = re.search(r"the same for all models: (.*?)\. Other ", guide, re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", sentence[1])) == sorted(known)
