"""Every mistake of a user is one line that says what came, before anything runs."""

import numpy as np
import pytest

import tiny
from pfljax import Experiment, data
from pfljax.data import Federation, MissingDataset
from pfljax.registry import Choice, choose
from pfljax.runs import checks, folder
from pfljax.runs.folder import FolderError
from pfljax.simulate import loop
from pfljax.simulate import run as experiment

NAN, INF = float("nan"), float("inf")
BY_STEPS = {"epochs": None, "steps": 3}
RHO = {
    "algorithm": "fedprox:mu=0.1,inexactness=True",
    "dissimilarity": True,
    "smoothness": 1.0,
}

# Settings that differ from the defaults, and what the message tells.
SETTINGS = {
    # types
    "cohort-float": ({"cohort": 2.5}, "cohort is 2.5; expected a whole number"),
    "rounds-text": ({"rounds": "10"}, "rounds is '10'; expected a whole number"),
    "rounds-bool": ({"rounds": True}, "rounds is True; expected a whole number"),
    "lr-text": ({"lr": "0.1"}, "lr is '0.1'; expected a number"),
    "seed-float": ({"seed": 1.5}, "seed is 1.5; expected a whole number"),
    "trained-int": ({"trained": 1}, "trained is 1; expected True or False"),
    "drop-text": ({"drop_stragglers": "yes"}, "drop_stragglers is 'yes'"),
    "precision-unknown": (
        {"precision": "half"}, "precision is 'half'; expected one of float32, tf32, bf",
    ),
    "out-int": ({"out": 3}, "out is 3; expected a text"),
    "label-int": ({"label": 3}, "label is 3; expected a text"),
    "algorithm-none": ({"algorithm": None}, "algorithm is None; expected a text"),
    # ranges
    "cohort-zero": ({"cohort": 0}, "cohort is 0; expected at least 1"),
    "cohort-large": ({"cohort": 30}, "cohort is 30, .* 20 clients; choose cohort"),
    "clients-zero": ({"clients": 0}, "clients is 0; expected at least 1$"),
    "rounds-zero": ({"rounds": 0}, "rounds is 0; expected at least 1"),
    "epochs-zero": ({"epochs": 0}, "epochs is 0; expected a finite number > 0"),
    "epochs-negative": ({"epochs": -0.5}, "epochs is -0.5; expected a finite number >"),
    "epochs-nan": ({"epochs": NAN}, "epochs is nan; expected a finite number > 0"),
    "epochs-word": ({"epochs": "half"}, r"epochs is 'half'; expected a number"),
    "epochs-past-32-bits": ({"epochs": 2.0**40}, r"epochs is .*; .* below 2\*\*31"),
    "dissimilarity-int": ({"dissimilarity": 1}, "is 1; expected True or False"),
    "dissimilarity-models": (
        {"dissimilarity": True, "models": ["mlp"]}, "no distance; leave one of the two",
    ),
    "dissimilarity-homes": (
        {"dissimilarity": True, "homes": True}, "and homes: .*; leave one of the two",
    ),
    "dissimilarity-of-local": (
        {"dissimilarity": True, "algorithm": "local"}, "and local has none; leave it",
    ),
    "smoothness-alone": ({"smoothness": 1.0}, "rho needs B; set dissimilarity as well"),
    "smoothness-zero": (
        {"smoothness": 0.0, "dissimilarity": True}, "smoothness is 0.0; expected a f",
    ),
    "concavity-alone": ({"concavity": 0.1}, "rho needs L as well; give smoothness"),
    "concavity-negative": ({"concavity": -0.1}, "concavity is -0.1; expected a finite"),
    "concavity-mu": (
        {**RHO, "concavity": 0.2}, "mu is 0.1, and concavity is 0.2: rho is of a mu a",
    ),
    "smoothness-of-fedavg": (
        {**RHO, "algorithm": "fedavg"}, "but fedavg reports loss as it is; leave ",
    ),
    "batch-zero": ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
    "width-zero": ({"width": 0}, "width is 0; expected at least 1"),
    "eval-zero": ({"eval_every": 0}, "eval_every is 0; expected at least 1"),
    "foreign-negative": ({"foreign": -1}, "foreign is -1; expected at least 0"),
    "keep-zero": ({"keep": 0}, "keep is 0; expected at least 1"),
    "steps-past-32-bits": (
        {"epochs": None, "steps": 2**32}, r"steps is 4294967296; .* below 2\*\*31$",
    ),
    "width-past-32-bits": ({"width": 2**31}, r"width is 2147483648; .* below 2\*\*31$"),
    "both": ({"steps": 3}, "epochs is 5 and steps is 3; give exactly .*--epochs None"),
    "neither": ({"epochs": None}, "epochs is None and steps is None; give exactly"),
    "lr-negative": ({"lr": -0.1}, "lr is -0.1; expected a finite number > 0"),
    "lr-nan": ({"lr": NAN}, "lr is nan; expected a finite number > 0"),
    "lr-inf": ({"lr": INF}, "lr is inf; expected a finite number > 0"),
    "lr-zero-in-float32": ({"lr": 1e-320}, "lr is 1e-320; .* from 1.2e-38"),
    "lr-infinite-in-float32": ({"lr": 1e39}, "lr is 1e.39; .* to 3.4e38"),
    "decay-zero": ({"lr_decay": 0.0}, "lr_decay is 0.0; expected a finite number > 0"),
    "momentum-one": ({"momentum": 1.0}, "momentum is 1.0; expected a number >= 0 and"),
    "momentum-one-in-float32": (
        {"momentum": 0.9999999999}, "momentum is 0.9999999999; .* up to 0.99999994",
    ),
    "decay-zero-in-float32": ({"weight_decay": 1e-60}, "weight_decay is 1e-60; .*0 or"),
    "b1-one-in-float32": (
        {"optimizer": "adam:b1=0.9999999999"}, "'adam': b1 is 0.9999999999; expected",
    ),
    "b2-one-in-float32": (
        {"optimizer": "adam:b2=0.9999999999"}, "'adam': b2 is 0.9999999999; expected",
    ),
    "eps-zero-in-float32": (
        {"optimizer": "adam:eps=1e-60"}, "'adam': eps is 1e-60; .*0 or from 1.2e-38",
    ),
    "momentum-nan": ({"momentum": NAN}, "momentum is nan; expected"),
    "decay-negative": ({"weight_decay": -1.0}, "weight_decay is -1.0; expected a fini"),
    "decay-inf": ({"weight_decay": INF}, "weight_decay is inf; expected a finite"),
    "seed-negative": ({"seed": -1}, "seed is -1; expected 0 <= seed"),
    "seed-large": ({"seed": 2**31}, r"expected 0 <= seed < 2\*\*31"),
    "test-negative": ({"test": -0.1}, "test is -0.1; expected a share"),
    "test-large": ({"test": 1.5}, "test is 1.5; expected a share"),
    "test-nan": ({"test": NAN}, "test is nan; expected a share"),
    "validation-all": ({"validation": 1.0}, "validation is 1.0; expected a share"),
    "stragglers-nan": ({"stragglers": NAN}, "stragglers is nan; expected a share"),
    "stragglers": ({"stragglers": 1.5}, "stragglers is 1.5; expected a share"),
    "stragglers-negative": ({"stragglers": -0.5}, "stragglers is -0.5; expected a sh"),
    "drop-nobody": (
        {"drop_stragglers": True}, "is set, but stragglers is 0; give their share",
    ),
    "drop-all": (
        {"drop_stragglers": True, "stragglers": 0.9, "cohort": 4},
        "of a cohort of 4 nobody would ever report; choose a smaller share",
    ),
    "trim-nobody": (
        {"aggregation": "trimmed_mean", "cohort": 5},
        "trim is 0.1, of which a cohort of 5 has nobody at either end",
    ),
    "no-train-rows": ({"test": 0.6, "validation": 0.5}, "leave examples to train on"),
    "no-test-rows": ({"test": 0.0}, "no client has test rows"),
    "few-test-rows": (
        {"test": 0.001, "partition": "iid"}, "choose a larger share or fewer clients",
    ),
    "unseen-all": ({"unseen": 1.0}, "unseen is 1.0; expected a share"),
    "unseen-none": ({"unseen": 0.01}, "holds out 0 of 20 clients; hold out at least 1"),
    "unseen-most": ({"unseen": 0.8}, "holds out 16 of 20 .* leave the cohort of 5"),
    # names
    "algorithm": ({"algorithm": "fedavgg"}, "unknown algorithm.*known: apfl, apple, a"),
    "near": ({"algorithm": "fedavgg"}, "did you mean 'fedavg'"),
    "dataset": ({"dataset": "digitz"}, "data set 'digitz'; known: .*mean 'digits'?"),
    "dataset-option": ({"dataset": "digits:evry=2"}, "'evry'; known: every; did you"),
    "dataset-comma": ({"dataset": ","}, "unknown data set ','; known: cifar10, "),
    "dataset-config": ({"dataset": "emnist/foo"}, "no data set 'emnist/foo'"),
    "dataset-empty": ({"dataset": ""}, "'' has no name"),
    "partition": ({"partition": "shard"}, "unknown partition 'shard'; known: .*iid"),
    "model": ({"model": "mlpp"}, "unknown model 'mlpp'; known: .*logistic"),
    "optimizer": ({"optimizer": "adamm"}, "unknown optimizer 'adamm'; .*mean 'adam'?"),
    "selection": ({"selection": "random"}, "unknown selection 'random'; known: av"),
    "selection-option": (
        {"selection": "uniform:size=3"}, "'uniform': unknown parameter 'size'; known",
    ),
    "channel": ({"channel": 3}, 'channel is 3; expected names, such as "clip:norm=1.0'),
    "channel-norm": ({"channel": "clip:norm=0"}, "channel 'clip': norm is 0; expected"),
    "rows": ({"rows": "test"}, "rows is 'test'; known: train, all"),
    "test-from": ({"test_from": "server"}, "test_from is 'server'; known:"),
    # options
    "optimizer-option": ({"optimizer": "adam:b3=1"}, "unknown parameter 'b3'"),
    "optimizer-type": ({"optimizer": "adam:b1=x"}, "b1 is 'x'; expected a number"),
    "optimizer-range": (
        {"optimizer": "adam:b1=2"}, "optimizer 'adam': b1 is 2; expected a number >= 0",
    ),
    "optimizer-eps": (
        {"optimizer": "adam:eps=-1"}, "optimizer 'adam': eps is -1; expected a finite",
    ),
    "optimizer-loss": ({"optimizer": "softmax_cross_entropy"}, "optimizer 'softm"),
    "sgd-option": ({"optimizer": "sgd:nesterov=True"}, "from momentum and weight"),
    "adam-momentum": ({"optimizer": "adam", "momentum": 0.9}, "belong to sgd"),
    "hyper": (
        {"algorithm": "ditto", "hyper": {"lam": 0.5, "personal_epochs": None}},
        "write algorithm='ditto:lam=0.5,personal_epochs=None', or a Choice",
    ),
    "hyper-unknown": ({"algorithm": "fedavg:mu=1.0"}, "unknown parameter 'mu'; known:"),
    "hyper-pairs": ({"algorithm": Choice("fedavg", 3)}, "has options 3; expected opt"),
    "hyper-int": ({"algorithm": Choice("fedavg", {1: 2})}, "parameter 1 is no name; e"),
    "hyper-none": ({"algorithm": Choice("fedavg", {None: 2})}, "parameter None is no"),
    "hyper-past-32-bits": ({"algorithm": f"fedavg:finetune={2**70}"}, r"below 2\*\*31"),
    "hyper-float": ({"algorithm": "fedavg:finetune=1.5"}, "is 1.5; expected a whole"),
    "hyper-negative": ({"algorithm": "fedavg:finetune=-1"}, "finetune is -1; expected"),
    "mu-nan": (
        {"algorithm": choose("fedprox", mu=NAN)}, "mu is nan; expected a finite",
    ),
    "mu-negative": (
        {"algorithm": "fedprox:mu=-0.1"}, "mu is -0.1; expected a fin",
    ),
    "gamma-of-others": (
        {"algorithm": "fedavg:inexactness=True"}, "parameter 'inexactness'; known:",
    ),
    "gamma-number": (
        {"algorithm": "fedprox:inexactness=1"}, "is 1; expected True or False",
    ),
    "streak-zero": (
        {"algorithm": "fedprox_adaptive:streak=0"}, "is 0; exp",
    ),
    "step-negative": (
        {"algorithm": "fedprox_adaptive:step=-0.1"}, "step is -0.1",
    ),
    "iid-word": (
        {"algorithm": "fedprox_heuristic:iid=no"}, "is 'no'; expected",
    ),
    "feddyn-alpha": (
        {"algorithm": "feddyn:alpha=-1.0"}, "alpha is -1.0; expected a",
    ),
    "fednova-mu": (
        {"algorithm": choose("fednova", mu=NAN)}, "mu is nan; expected a finite",
    ),
    "lam-text": (
        {"algorithm": "ditto:lam=x"}, "lam is 'x'; expected a number",
    ),
    "lam-negative": (
        {"algorithm": "ditto:lam=-1.0"}, "lam is -1.0; expected",
    ),
    "epochs-text": (
        {"algorithm": "ditto:personal_epochs=x"}, "expected a number",
    ),
    "epochs-of-steps": (
        {"algorithm": "ditto:personal_epochs=2"} | BY_STEPS,
        "local training counts steps; give epochs",
    ),
    "mixing": (
        {"algorithm": "superfed:mixing=foo"}, "known: model, layer",
    ),
    "variant": (
        {"algorithm": "per_fedavg:variant=x"}, "known: first_order",
    ),
    "delta": (
        {"algorithm": "per_fedavg:delta=0.0"}, "delta is 0.0; .* > 0",
    ),
    "start": (
        {"algorithm": "superfed:start=1.5"}, "1.5; expected a numb",
    ),
    "option": ({"algorithm": "scaffold:option=III"}, "known: I, II"),
    "clusters": ({"algorithm": "ifca:clusters=0"}, "expected at"),
    "clusters-many": (
        {"algorithm": "ifca:clusters=21"}, "federation has 20 clients",
    ),
    "averaging": ({"algorithm": "ifca:averaging=x"}, "known:"),
    # models
    "model-int": ({"model": "mlp:hidden=8"}, r"hidden is 8; expected .*\(64,\)"),
    "model-zero": ({"model": "mlp:hidden=(8, 0)"}, r"hidden is \(8, 0\); expected pos"),
    "model-text": ({"model": "mlp:hidden=foo"}, "hidden is 'foo'; expected positive"),
    "model-option": ({"model": "mlp:width=8"}, "unknown parameter 'width'; known: hid"),
    "model-conv": ({"model": "gn_cnn:conv=fft"}, "known: auto, im2col, lax"),
    "model-pools": (
        {"model": "gn_cnn:channels=(8,8,8,8)"}, "choose a model with fewer pools",
    ),
    "model-shape": (
        {"model": "twocnn", "dataset": "synthetic", "partition": "iid"},
        "expected images .* choose a model without convolutions",
    ),
    "model-tokens": ({"model": "char_lstm"}, r"expected tokens \[B, T\]; choose"),
    # partitions
    "form": ({"partition": "shards:per_client"}, "not of the form name:key=value"),
    "shards-type": ({"partition": "shards:per_client=2.5"}, "whole number, such as 2"),
    "shards-option": ({"partition": "shards:count=2"}, "known: per_client"),
    "shards-many": ({"partition": "shards:per_client=100"}, "1 <= per_client <= 89"),
    "classes-many": ({"partition": "classes:per_client=11"}, "there are 10 classes"),
    "alpha-zero": (
        {"partition": "dirichlet_over_clients:alpha=0"}, "alpha is 0; expected a fini",
    ),
    "alpha-negative": (
        {"partition": "dirichlet_over_classes_by_client:alpha=-1"},
        "alpha is -1; expected",
    ),
    "alpha-text": (
        {"partition": "dirichlet_over_clients:alpha=foo"}, "expected a number, such as",
    ),
    "min-size": (
        {"partition": "dirichlet_over_clients:min_size=1000"}, "choose 0 <= min_size",
    ),
    "empty-clients": (
        {"partition": "dirichlet_over_clients:alpha=0.01,min_size=0"},
        "clients have no examples; choose fewer",
    ),
    "clients-many": ({"clients": 3000}, "there are 1797 examples; choose"),
    "clients-none": ({"clients": None}, "partition 'shards' needs num_clients"),
    "natural": ({"partition": "natural"}, "no natural clients; choose another"),
    "natural-count": (
        {"partition": "natural", "dataset": "synthetic", "clients": 7},
        "have 30 natural clients",
    ),
    "natural-cohort": (
        {"partition": "natural", "dataset": "synthetic", "clients": None, "cohort": 50},
        "choose 1 <= cohort <= 30",
    ),
    # data
    "noise": ({"noise": "pairs:rate=0.1"}, "unknown noise 'pairs'; known: none, pair"),
    "noise-rate": ({"noise": "pair"}, "noise 'pair' needs the parameter 'rate'"),
    "noise-share": ({"noise": "pair:rate=1.5"}, "rate is 1.5; expected a number from"),
    "official": ({"test_from": "official"}, "'digits' has no official test"),
    "path-missing": ({"dataset": "npz"}, "needs the parameter 'path'"),
    "path-wrong": ({"dataset": "npz:path=/no.npz"}, "no file '/no.npz'; give path="),
    "path-folder": ({"dataset": "npz:path=/"}, "/ cannot be read .*no .npz archive"),
    "synthetic-type": ({"dataset": "synthetic:alpha=x"}, "alpha is 'x'; expected"),
    "baseline": ({"baseline": "nowhere"}, "nowhere is not a finished run; run it"),
}  # fmt: skip


@pytest.fixture
def idle(monkeypatch):
    """Fails the test where a run gets as far as its first compiled function."""

    def reached(run):
        raise AssertionError("the mistake was not found before the run began")

    monkeypatch.setattr(loop, "restore", reached)


def tell(error):
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
    tell(error)
    assert not (
        out / "config.json"
    ).exists()  # the corrected command may use the folder


def test_corrected_settings_may_use_the_same_folder(tmp_path, monkeypatch):
    def reached(run):
        raise InterruptedError

    monkeypatch.setattr(loop, "restore", reached)
    wrong = tiny.TINY.replace(out=str(tmp_path), model="mlpp")
    with pytest.raises(ValueError, match="unknown model"):
        experiment.run(wrong)
    with pytest.raises(InterruptedError):
        experiment.run(wrong.replace(model="mlp"))


def test_several_mistakes_are_told_at_once():
    with pytest.raises(ValueError, match=r"rounds is 0.*; lr is -1.0; .*; seed is -1;"):
        checks.check(Experiment(rounds=0, lr=-1, seed=-1))


def test_a_data_set_that_is_not_there_gives_the_command(tmp_path, monkeypatch, idle):
    monkeypatch.setenv("PFLJAX_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))
    with pytest.raises(MissingDataset, match=r"run: pfljax prepare cifar100$") as error:
        experiment.run(Experiment(dataset="cifar100", out=str(tmp_path / "run")))
    tell(error)


X, Y = np.ones((4, 2, 2), np.float32), np.arange(4)


def test_an_npz_without_labels_or_with_bad_pixels(tmp_path, idle):
    job = Experiment(dataset=f"npz:path={tmp_path}/a.npz", out=str(tmp_path / "run"))
    np.savez(tmp_path / "a.npz", x=X)
    with pytest.raises(ValueError, match=r"lacks 'y'; it has \['x'\]"):
        experiment.run(job)
    np.savez(tmp_path / "a.npz", x=X * NAN, y=Y)
    with pytest.raises(ValueError, match="x holds NaN"):
        experiment.run(job)


def test_a_client_without_rows():
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
        "file": "cannot write to .*file .*File exists.*; choose another --out",
        "file/run": "cannot write to .*Not a directory.*; choose another --out",
        "full": r"full is not empty and not a run \(thesis.tex\); choose another --out",
        "/proc/run": "cannot write to /proc/run .*; choose another --out",
    }
    for name, message in wrong.items():
        with pytest.raises(FolderError, match=message) as error:
            experiment.run(Experiment(out=str(tmp_path / name)))
        tell(error)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_a_folder_in_use(tmp_path, idle):
    with (
        folder.locked(tmp_path),
        pytest.raises(FolderError, match="another process is running in"),
    ):
        experiment.run(Experiment(out=str(tmp_path)))
