"""Every mistake of a user is one line that says what came, before anything runs."""

import numpy as np
import pytest

from pfljax import Experiment, data
from pfljax.data import Federation, MissingDataset
from pfljax.runs import folder
from pfljax.runs.folder import FolderError
from pfljax.simulate import loop
from pfljax.simulate import run as experiment

NAN, INF = float("nan"), float("inf")

# Settings that differ from the defaults, and what the message tells.
SETTINGS = {
    # types
    "int": ({"cohort": 2.5}, "cohort is 2.5; expected a whole number"),
    "bool for int": ({"rounds": True}, "rounds is True; expected a whole number"),
    "float": ({"lr": "0.1"}, "lr is '0.1'; expected a number"),
    "bool": ({"stratified": 1}, "stratified is 1; expected True or False"),
    "text": ({"out": 3}, "out is 3; expected a text or None"),
    "literal": ({"precision": "half"}, "precision is 'half'; expected 'float32' or 't"),
    "component": ({"algorithm": None}, "algorithm is None; expected a name"),
    "components": ({"channel": 3}, "channel is .3,.; expected a name, or several"),
    # ranges
    "at least one": ({"cohort": 0}, "cohort is 0; expected at least 1"),
    "count": ({"ood_examples": -1}, "ood_examples is -1; expected at least 0"),
    "32 bits": (
        {"epochs": None, "steps": 2**32}, r"steps is 4294967296; .* below 2\*\*31$",
    ),
    "positive": ({"lr": -0.1}, "lr is -0.1; expected a finite number > 0"),
    "zero in float32": ({"lr": 1e-320}, "lr is 1e-320; .* from 1.2e-38"),
    "infinite in float32": ({"lr": 1e39}, "lr is 1e.39; .* to 3.4e38"),
    "part": ({"validation": 1.0}, "validation is 1.0; expected a share"),
    "UTF-8": ({"label": "\udcff"}, "expected printable text"),
    # conflicts
    "cohort": ({"cohort": 30}, "cohort is 30, .* 20 clients; choose cohort"),
    "both": ({"steps": 3}, "epochs is 5 and steps is 3; give one .*--epochs None"),
    "dissimilarity, models": (
        {"dissimilarity": True, "models": ["mlp"]}, "no distance; leave one of the two",
    ),
    "dissimilarity, pinned": (
        {"dissimilarity": True, "pin_clients": True}, "pin_clients are set, .*; leave",
    ),
    "dissimilarity, local": (
        {"dissimilarity": True, "algorithm": "local"}, "and local has none; leave it",
    ),
    "drop nobody": ({"drop_stragglers": True}, "but stragglers is 0; set their share"),
    "drop all": (
        {"drop_stragglers": True, "stragglers": 0.9, "cohort": 4},
        "no client of a cohort of 4 would report; choose a smaller share",
    ),
    "stragglers": ({"stragglers": 0.05}, "which is no client of a cohort of 5"),
    "trim": (
        {"aggregation": "trimmed_mean", "cohort": 5},
        "trim of aggregation 'trimmed_mean' is 0.1; expected 0, or at least 1 / cohort",
    ),
    "adam, momentum": ({"optimizer": "adam", "momentum": 0.9}, "belong to sgd"),
    "pin, host": (
        {"pin_clients": True, "state_storage": "host"}, "pin_clients needs state_st",
    ),
    # shares of the examples
    "no train rows": ({"test": 0.6, "validation": 0.5}, "leave examples to train on"),
    "no test rows": ({"test": 0.0}, "no client has test examples"),
    "few test rows": (
        {"test": 0.001, "partition": "iid"}, "expected a larger share, or",
    ),
    "unseen none": ({"unseen": 0.01}, "holds out 0 of 20 clients; hold out at least 1"),
    "unseen most": ({"unseen": 0.8}, "holds out 16 of 20 .* leave the cohort of 5"),
    "unseen name": ({"unseen": "20"}, "unknown client '20'; known: 0, 1"),
    # names
    "dataset": ({"dataset": "digitz"}, "data set 'digitz'; did you mean 'digits'?"),
    "dataset config": ({"dataset": "emnist/foo"}, "no data set 'emnist/foo'"),
    "empty name": ({"dataset": ""}, "'' has no name"),
    # options
    "option missing": ({"noise": "pair"}, "noise 'pair' needs the parameter 'rate'"),
    "epochs of steps": (
        {"algorithm": "ditto:personal_epochs=2", "epochs": None, "steps": 3},
        "local training counts steps; give epochs",
    ),
    # models
    "hidden": ({"model": "mlp:hidden=(8, 0)"}, r"hidden is \(8, 0\); expected pos"),
    "pools": ({"model": "gn_cnn:channels=(8,8,8,8)"}, "model with fewer pools"),
    "images": (
        {"model": "twocnn", "dataset": "synthetic", "partition": "iid"},
        "expected images .* choose a model without convolutions",
    ),
    "tokens": ({"model": "char_lstm"}, r"expected tokens \[B, T\]; choose"),
    # partitions
    "shards": ({"partition": "shards:per_client=100"}, "1 <= per_client <= 89"),
    "classes": ({"partition": "classes:per_client=11"}, "there are 10 classes"),
    "min size": ({"partition": "dirichlet:min_size=1000"}, "choose 0 <= min_size"),
    "empty clients": (
        {"partition": "dirichlet:alpha=0.01,min_size=0"},
        "clients have no examples; choose fewer",
    ),
    "clients": ({"clients": 3000}, "there are 1797 examples; choose"),
    "clients None": ({"clients": None}, "partition 'shards' needs num_clients"),
    "natural": ({"partition": "natural"}, "no natural clients; choose another"),
    "natural count": (
        {"partition": "natural", "dataset": "synthetic", "clients": 7},
        "have 30 natural clients",
    ),
    "natural cohort": (
        {"partition": "natural", "dataset": "synthetic", "clients": None, "cohort": 50},
        "choose 1 <= cohort <= 30",
    ),
    # data
    "official": ({"test_from": "official"}, "'digits' has no official test"),
    "path": ({"dataset": "npz:path=/no.npz"}, "no file '/no.npz'; give path="),
    "folder": ({"dataset": "npz:path=/"}, "/ cannot be read .*no .npz archive"),
}  # fmt: skip


@pytest.fixture
def idle(monkeypatch):
    """Fails the test where a run gets as far as its first compiled function."""

    def reached(run):
        raise AssertionError("the mistake was not found before the run began")

    monkeypatch.setattr(loop, "restore", reached)


def one_line(error):
    """The message, after checking that it is one line of bearable length."""
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name, tmp_path, idle):
    changes, message = SETTINGS[name]
    out = tmp_path / "run"
    with pytest.raises(ValueError, match=message) as error:
        experiment.run(Experiment(**{"out": str(out), **changes}))
    one_line(error)
    assert not (
        out / "config.json"
    ).exists()  # the corrected command may use the folder


def test_a_data_set_that_is_not_there_gives_the_command(tmp_path, monkeypatch, idle):
    monkeypatch.setenv("PFLJAX_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))
    with pytest.raises(MissingDataset, match=r"run: pfljax prepare cifar100$") as error:
        experiment.run(Experiment(dataset="cifar100", out=str(tmp_path / "run")))
    one_line(error)


X, Y = np.ones((4, 2, 2), np.float32), np.arange(4)


def test_an_npz_without_labels_or_with_bad_pixels(tmp_path, idle):
    job = Experiment(dataset=f"npz:path={tmp_path}/a.npz", out=str(tmp_path / "run"))
    np.savez(tmp_path / "a.npz", x=X)
    with pytest.raises(ValueError, match=r"lacks 'y'; it has \['x'\]"):
        experiment.run(job)
    np.savez(tmp_path / "a.npz", x=X * NAN, y=Y)
    with pytest.raises(ValueError, match="x holds NaN"):
        experiment.run(job)


def test_a_client_without_examples():
    arrays = data.from_arrays(X, Y)
    with pytest.raises(ValueError, match="1 of 2 clients have no examples"):
        data.federate(arrays, data.from_indices([[0, 1], []]), num_clients=2, seed=0)


def test_a_federation_smaller_than_the_cohort(tmp_path, idle):
    arrays = data.from_arrays(np.repeat(X, 4, 0), np.repeat(Y, 4))
    small = data.federate(arrays, "iid", num_clients=2, seed=0)
    assert isinstance(small, Federation)
    with pytest.raises(ValueError, match="cohort is 5, but there are 2 clients"):
        experiment.run(Experiment(out=str(tmp_path / "run")), small)


def test_output_folders(tmp_path, idle):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    wrong = {
        "file": "File exists",
        "file/run": "Not a directory",
        "full": r"full is not empty and not a run \(thesis.tex\); choose another --out",
    }
    for name, message in wrong.items():
        with pytest.raises((FolderError, OSError), match=message) as error:
            experiment.run(Experiment(out=str(tmp_path / name)))
        one_line(error)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_a_folder_in_use(tmp_path, idle):
    with (
        folder.lock(tmp_path),
        pytest.raises(FolderError, match="another process is running in"),
    ):
        experiment.run(Experiment(out=str(tmp_path)))
