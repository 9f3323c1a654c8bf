"""An exported model is the one that was evaluated."""

import json
import os
import shutil

import numpy as np
import pytest

import tiny
from pfljax.cli import model_commands
from pfljax.core import tree
from pfljax.core.types import Batch
from pfljax.runs.folder import read_json, write_json
from pfljax.simulate import export

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())[0]


@pytest.fixture(scope="module")
def loaded(folder):
    return export.load_state(folder)


def accuracy(params, loaded, client):
    """Accuracy on a client's test examples of exported parameters."""
    sim, federation, _ = loaded
    test = federation.test
    span = slice(test.offset[client], test.offset[client] + test.size[client])
    logits = sim.task.predict(params, Batch.full(test.examples.x[span]))
    return float(np.mean(np.argmax(logits, 1) == np.asarray(test.examples.y[span])))


def test_each_clients_model_scores_as_reported(folder, loaded, tmp_path):
    reported = np.load(folder / "clients.npz")["personal/test/accuracy"][-1]
    found = []
    for client in range(len(reported)):
        file = tmp_path / f"{client}.npz"
        export.export(folder, client, file)
        found.append(accuracy(export.load_params(file), loaded, client))
    np.testing.assert_allclose(found, reported, rtol=1e-6)
    assert len(set(found)) > 1


def test_the_server_scores_as_reported(folder, loaded):
    code, out, errors = tiny.main("export", folder)
    assert code == 0, errors
    assert out.endswith(f"written to {folder}/server.npz\n")
    params = export.load_params(folder / "server.npz")
    (folder / "server.npz").unlink()  # other tests look at this folder, too
    reported = np.load(folder / "clients.npz")["server/test/accuracy"][-1]
    found = [accuracy(params, loaded, k) for k in range(len(reported))]
    np.testing.assert_allclose(found, reported, rtol=1e-6)


def test_the_command_names_the_arrays_that_it_writes(folder, loaded, tmp_path):
    file = tmp_path / "model.npz"
    code, out, _ = tiny.main("export", folder, "--client", 3, "--out", file)
    assert code == 0
    with np.load(file) as written:
        assert sorted(written) == sorted(tree.paths(loaded[2].server))
        for name in written:
            shape = list(written[name].shape)
            assert f"{name:40} float32{shape}\n" in out
    whole = loaded[1].manifest["clients"]  # one of six is held out
    assert len(whole) == 5
    assert f"client 3 of this run is client {whole[3]} of the data\n" in out


def test_a_client_has_its_name_or_its_number(tmp_path):
    manifest = json.dumps({"client_names": ["ann", "ben"]})
    np.savez(tmp_path / "partition.npz", manifest=manifest)
    found = [model_commands._find_client(tmp_path, name) for name in ("ben", "1", None)]
    assert found == [1, 1, None]
    with pytest.raises(ValueError, match=r"unknown client 'bem'; .* mean 'ben'"):
        model_commands._find_client(tmp_path, "bem")


@pytest.mark.parametrize("client", [-1, 5, 99])
def test_a_client_that_is_not_there(folder, client, tmp_path):
    message = f"client is {client}; expected 0 to 4, a client that trains"
    with pytest.raises(ValueError, match=message):
        export.export(folder, client, tmp_path / "no.npz")


@pytest.mark.parametrize("name", ["config.json", "clients.npz"])
def test_a_file_of_the_run_is_not_written_over(folder, name):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.raises(RuntimeError, match=f"{name} is a file of the run itself"):
        export.export(folder, None, folder / name)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_folder_is_no_file_to_write_to(folder, tmp_path):
    with pytest.raises(ValueError, match=r"is no file; expected"):
        export.export(folder, None, tmp_path)


def test_a_pipe_is_not_replaced_by_a_file(folder, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match=r"is no file; expected"):
        export.export(folder, None, pipe)
    assert pipe.is_fifo()


def test_a_run_without_a_checkpoint(folder, tmp_path):
    for name in ("config.json", "partition.npz"):
        shutil.copyfile(folder / name, tmp_path / name)
    with pytest.raises(RuntimeError, match="has no checkpoint yet; run it first"):
        export.export(tmp_path, 0, tmp_path / "no.npz")


def test_the_task_of_a_folder_needs_no_data(folder, loaded, monkeypatch):
    monkeypatch.setattr(export, "build_federation", None)
    task = export.load_task(folder)
    batch = Batch.full(loaded[1].test.examples.x[:5])
    ours = task.predict(loaded[2].server, batch)
    wanted = loaded[0].task.predict(loaded[2].server, batch)
    np.testing.assert_array_equal(ours, wanted)


def test_what_is_no_run_is_said_first(tmp_path):
    code, _, errors = tiny.main("export", tmp_path / "nope")
    assert (code, errors.count("\n")) == (2, 1)
    assert "nope is not a run folder: it does not exist; give the folder" in errors


def test_safetensors_have_the_same_arrays(folder, tmp_path):
    pytest.importorskip("safetensors")
    code, _, errors = tiny.main(
        "export", folder, "--format", "safetensors", "--out", tmp_path / "a.safetensors"
    )
    assert code == 0, errors
    export.export(folder, None, tmp_path / "a.npz")
    safe, plain = (
        tree.paths(export.load_params(tmp_path / f"a.{end}"))
        for end in ("safetensors", "npz")
    )
    assert safe.keys() == plain.keys()
    for name in safe:
        np.testing.assert_array_equal(safe[name], plain[name])


def test_a_name_of_another_format_is_refused(folder):
    code, _, errors = tiny.main("export", folder, "--out", "a.safetensors")
    assert (code, errors.count("\n")) == (2, 1)
    assert "expected a name that ends in .npz" in errors


def test_nested_names_become_nested_dicts(tmp_path):
    np.savez(tmp_path / "a.npz", **{"body/0/kernel": np.ones(2), "head": np.zeros(1)})
    params = export.load_params(tmp_path / "a.npz")
    assert params["body"]["0"]["kernel"].tolist() == [1, 1]
    assert params["head"].tolist() == [0]
    with pytest.raises(ValueError, match=r"none\.npz is missing; give a file of"):
        export.load_params("none.npz")


def test_a_run_of_more_devices_is_read_and_goes_on(folder, tmp_path):
    half = tiny.unfinished(folder, tmp_path / "half")
    config = half / "config.json"
    settings = read_json(config)
    settings |= {"devices": 512, "pin_clients": True}
    write_json(config, settings)
    assert export.load_state(half)[2].round == 2
    assert tiny.main("resume", half)[0] == 0
    given = (f / "clients.npz" for f in (half, folder))
    ours, theirs = (np.load(file)["personal/test/loss"] for file in given)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
