"""All personal models of a run at once, and what they predict."""

import csv
import shutil

import jax
import numpy as np
import pytest

import tiny
from pfljax import run
from pfljax.simulate import export, personal

COLUMNS = personal.COLUMNS
GROUPS = tiny.TINY.replace(
    algorithm="fedproto",
    model="auto",
    models="mlp:hidden=(8,) mlp:hidden=(6,8)",
    rounds=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())[0]


@pytest.fixture(scope="module")
def columns(folder):
    return personal.predictions(folder)


def accuracy(columns, client):
    theirs = columns["client"] == client
    hits = columns["prediction"][theirs] == columns["label"][theirs]
    return np.float32(hits.sum()) / np.float32(theirs.sum())


def test_accuracy_is_that_of_the_run_exactly(folder, columns):
    reported = np.load(folder / "clients.npz")["personal/test/accuracy"][-1]
    found = [accuracy(columns, client) for client in range(len(reported))]
    np.testing.assert_array_equal(found, reported)
    assert len(set(found)) > 1


def test_confusion_counts_the_examples(columns):
    confusion = columns["confusion"]
    assert confusion.sum() == len(columns["example"])
    for client in columns["clients"]:
        theirs = columns["client"] == client
        label = columns["label"][theirs]
        prediction = columns["prediction"][theirs]
        for k in range(len(confusion[client])):
            of_label = np.bincount(prediction[label == k], minlength=len(confusion[0]))
            np.testing.assert_array_equal(confusion[client, k], of_label)
    classes = confusion.shape[1]
    assert (columns["probability"] >= 1 / classes).all()
    assert (columns["probability"] <= 1).all()


def test_all_models_are_those_of_each_with_one_restore(folder, monkeypatch):
    restored = []
    restore = export.checkpoint.restore
    monkeypatch.setattr(
        export.checkpoint,
        "restore",
        lambda *given, **named: restored.append(1) or restore(*given, **named),
    )
    models = personal.personal_models(folder)
    assert len(restored) == 1
    alone = export.personal_model(folder, 3)
    for stacked, leaf in zip(
        jax.tree.leaves(models), jax.tree.leaves(alone), strict=True
    ):
        np.testing.assert_allclose(stacked[3], leaf, rtol=1e-6)
        assert len(stacked) == 5


@pytest.mark.slow
def test_blocks_change_nothing(folder, columns, monkeypatch):
    whole = personal.personal_models(folder)
    monkeypatch.setattr(personal, "_blocks", lambda sim: sim._replace(block=2))
    in_blocks = personal.personal_models(folder)
    for leaf, same in zip(
        jax.tree.leaves(whole), jax.tree.leaves(in_blocks), strict=True
    ):
        np.testing.assert_allclose(same, leaf, rtol=1e-6)
    again = personal.predictions(folder)
    np.testing.assert_array_equal(again["prediction"], columns["prediction"])


def test_the_command_writes_one_client(folder, columns, tmp_path):
    file = tmp_path / "p.csv"
    code, out, errors = tiny.main("predict", folder, "--client", 3, "--out", file)
    assert code == 0, errors
    assert " test examples of client 3, " in out
    assert f"written to {file} and {tmp_path}/p_confusion.csv\n" in out
    with open(file, newline="") as lines:
        header, *rows = csv.reader(lines)
    theirs = columns["client"] == 3
    assert header == list(COLUMNS)
    labels = [int(row[header.index("label")]) for row in rows]
    predictions = [int(row[header.index("prediction")]) for row in rows]
    assert labels == columns["label"][theirs].tolist()
    assert predictions == columns["prediction"][theirs].tolist()
    with open(tmp_path / "p_confusion.csv", newline="") as lines:
        cells = list(csv.DictReader(lines))
    assert {cell["client"] for cell in cells} == {"3"}
    assert sum(int(cell["examples"]) for cell in cells) == len(rows)


def test_rows_have_the_names_of_clients_and_classes(tmp_path):
    columns = {
        "client": np.array([4, 7]),
        "example": np.array([0, 0]),
        "label": np.array([1, 0]),
        "prediction": np.array([0, -1]),
        "probability": np.array([0.5, 0.25]),
        "confusion": np.array([[[0, 0], [1, 0]], [[0, 0], [0, 0]]]),
        "clients": np.array([4, 7]),
        "client_names": np.array(["u", "v"]),
        "class_names": np.array(["no", "yes"]),
    }
    first, second = personal.write(columns, tmp_path / "p.csv")
    assert first.read_text().splitlines()[1:] == ["u,0,yes,no,0.5", "v,0,no,-1,0.25"]
    assert second.read_text().splitlines()[1:] == ["u,yes,no,1"]


@pytest.mark.parametrize("client", [-1, 5])
def test_a_client_that_is_not_there(folder, client):
    code, _, errors = tiny.main("predict", folder, f"--client={client}")
    assert (code, errors.count("\n")) == (2, 1)
    assert f"client is {client}; expected 0 to 4, a client that trains" in errors


def test_other_files_than_npz_and_csv_are_refused(folder, tmp_path):
    file = tmp_path / "x.txt"
    code, _, errors = tiny.main("predict", folder, "--out", file)
    assert code == 2
    assert "expected a name that ends in .npz or .csv" in errors
    assert not file.exists()


def test_a_run_that_is_not_finished(folder, tmp_path):
    for name in ("config.json", "partition.npz"):
        shutil.copyfile(folder / name, tmp_path / name)
    with pytest.raises(RuntimeError, match="is not finished; resume it"):
        personal.predictions(tmp_path)


@pytest.mark.slow
def test_clients_of_two_architectures(tmp_path):
    out = tmp_path / "groups"
    run(GROUPS.replace(out=str(out)), quiet=True, report=False)
    columns = personal.predictions(out)
    reported = np.load(out / "clients.npz")["personal/test/accuracy"][-1]
    found = [accuracy(columns, client) for client in range(len(reported))]
    np.testing.assert_array_equal(found, reported)
    first, second = personal.personal_models(out)
    assert jax.tree.structure(first) != jax.tree.structure(second)
    assert len(jax.tree.leaves(second)[0]) == 3
