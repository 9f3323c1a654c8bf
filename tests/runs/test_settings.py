"""Settings are checked, written, read back and compared."""

import json
import re

import numpy as np
import pytest

import tiny
from pfljax import Experiment
from pfljax.core import components
from pfljax.core.components import Component
from pfljax.runs import checks, config, settings

UNHASHED = {
    "out": "x", "label": "x", "devices": 1, "pin_clients": True,
    "keep_checkpoints": 3, "state_storage": "host", "log": ["csv"], "patience": 3,
    "monitor": "loss",
}  # fmt: skip
CHANGED = {  # another value of every setting that changes a number
    "algorithm": "ditto", "dataset": "synthetic",
    "partition": "iid", "model": "mlp", "clients": 21, "cohort": 6, "rounds": 101,
    "epochs": 6, "steps": 1, "batch_size": 11, "lr": 0.06, "lr_decay": 0.9,
    "momentum": 0.5, "weight_decay": 0.1, "optimizer": "adam", "selection": "by_size",
    "stragglers": 0.1, "drop_stragglers": True, "test": 0.3, "validation": 0.2,
    "stratified": True, "test_from": "official", "examples": "all", "unseen": 0.1,
    "seed": 1, "noise": "pair:rate=0.1", "eval_every": 11, "width": 2,
    "eval_after_training": True,
    "ood_examples": 50, "dissimilarity": True,
    "public": 0.1, "data_seed": 3, "precision": "bfloat16",
    "profile": "equal", "deadline": 2.0, "mode": "fedasync",
    "channel": ["clip:norm=2.0"], "aggregation": ["median"], "models": ["mlp"],
    "proxy": "mlp", "schedule": "cosine:decay_steps=9",
    "server_optimizer": "fedadam", "initial": "runs/other",
    "freeze": ["body/*"], "max_grad_norm": 1.0, "augment": ["flip"],
    "keep_optimizer": True, "loss": "huber:delta=2.0", "task": "regression",
    "metrics": ["r2"],
}  # fmt: skip
CONFIGS = {  # a broken config.json, or one of another program
    "broken": ("{", "missing or damaged"),
    "list": ("[1, 2]", "expected a JSON object"),
    "format": ('{"format": 1}', "its format is 1, and this pfljax reads format 3"),
    "other": ('{"name": "vit", "layers": 3}', "its format is None"),
    "unknown": ('{"format": 3, "lam": 1}', "unknown setting 'lam'; known: "),
    "type": ('{"format": 3, "rounds": "many"}', "rounds is 'many'; expected"),
    "method": ('{"format": 3, "algorithm": "fedfoo"}', "unknown algorithm 'fedfoo'"),
}


def test_every_setting_is_covered_here():
    assert set(settings.FIELDS) == set(CHANGED) | set(UNHASHED)


def test_every_setting_has_a_help_text():
    texts = [text for group in settings.HELP.values() for text in group.items()]
    assert [name for name, _ in texts] == [*settings.FIELDS]
    assert all(len(text) > 10 for _, text in texts)


def test_names_with_options_are_parsed_once():
    one = Experiment(dataset="synthetic:examples=3,alpha=1.0", model="mlp:hidden=[8]")
    options = {"alpha": 1.0, "examples": 3}
    assert one.dataset == components.Component("synthetic", options)
    assert one.model == components.Component("mlp", {"hidden": (8,)})
    assert one == Experiment(dataset=one.dataset, model=one.model)
    assert {one} == {one.replace(dataset="synthetic:alpha=1.0, examples=3")}
    with pytest.raises(ValueError, match="dataset: 'mnist:every' is not of the form"):
        Experiment(dataset="mnist:every")


def test_a_method_is_named_with_its_options():
    one = Experiment("ditto:lam=1.0")
    assert (one.algorithm.name, one.algorithm.options) == ("ditto", {"lam": 1.0})
    for method in (
        Component("ditto", {"lam": 1.0}),
        components.Component("ditto", {"lam": 1.0}),
    ):
        assert one == Experiment(method) == Experiment().replace(algorithm=method)
    assert one.replace(lr=0.5).algorithm == one.algorithm
    assert one.replace(algorithm="ditto").algorithm.args == ()
    with pytest.raises(ValueError, match="algorithm: 'ditto:lam' is not of the form"):
        Experiment("ditto:lam")


@pytest.mark.parametrize("value", [(8, 4), "a,b=1", None, True, 1e-7, "1", "it's, so"])
def test_every_value_of_an_option_can_be_written(value):
    named = Component("mine", {"one": value, "other": "adam:b1=0.8,b2=0.9", "p": 2})
    assert Experiment(str(named)).algorithm == named


def test_channels_are_one_text_or_several():
    one = Experiment(channel="clip:norm=1.0 gaussian:std=0.1")
    assert one == Experiment(channel=["clip:norm=1.0", "gaussian:std=0.1"])
    assert Experiment(channel=None) == Experiment(channel="") == Experiment()


def test_settings_survive_json():
    for experiment in (Experiment(), tiny.TINY, Experiment(**CHANGED)):
        text = json.dumps(config.to_dict(experiment))
        assert config.from_dict(json.loads(text)) == experiment


@pytest.mark.parametrize("name", CHANGED)
def test_what_changes_a_number_changes_the_digest(name):
    one = Experiment("superfed" if name == "rounds" else "fedavg")
    other = one.replace(**{name: CHANGED[name]})
    assert config.digest(other) != config.digest(one)
    (line,) = config.difference(one, other)
    assert line.startswith(f"{name}: ")


def test_the_digest_has_rounds_of_methods_that_look_ahead():
    for method, ahead in (("fedavg", False), ("ditto", False), ("superfed", True)):
        one = Experiment(method, rounds=20)
        assert config.looks_ahead(one) == ahead
        assert (config.digest(one.replace(rounds=30)) != config.digest(one)) == ahead


@pytest.mark.parametrize("name", UNHASHED)
def test_names_and_places_change_no_digest(name):
    other = Experiment(**{name: UNHASHED[name]})
    assert config.digest(other) == config.digest(Experiment())
    # A run does not go on in another store, although it would have the same numbers.
    differs = bool(config.difference(Experiment(), other))
    assert differs == (name == "state_storage")


def test_the_order_of_options_does_not_matter():
    a = Experiment(algorithm="superfed:mu=1.0,nu=2.0")
    b = Experiment(algorithm="superfed:nu=2.0,mu=1.0")
    assert a == b
    assert hash(a) == hash(b)


def test_resolve_writes_all_options_label_and_folder():
    resolved = checks.resolve(Experiment(algorithm="ditto:lam=1.0", seed=3))
    assert resolved.algorithm.options == {"lam": 1.0, "personal_epochs": None}
    assert resolved.label == "ditto lam=1.0"
    assert resolved.out.startswith("runs/digits-ditto-s3-lam=1-")
    assert checks.resolve(resolved) == resolved
    assert checks.resolve(Experiment(label="mine")).label == "mine"


def test_a_whole_number_is_the_float_that_it_equals():
    """Else the digests of equal settings differ, and no checkpoint is taken."""
    whole = Experiment(algorithm="ditto:lam=1", lr=1, test=0)
    other = Experiment(algorithm="ditto:lam=1.0", lr=1.0, test=0.0)
    a, b = checks.resolve(whole), checks.resolve(other)
    assert config.difference(a, b) == []
    assert config.digest(a) == config.digest(b)
    assert a.label == b.label == "ditto lam=1.0"
    epochs = Experiment(algorithm="ditto:personal_epochs=2")
    assert type(checks.resolve(epochs).algorithm.options["personal_epochs"]) is int


def test_epochs_may_be_a_fraction_and_whole_ones_are_integers():
    assert tiny.parsed("--epochs", "0.5").epochs == 0.5
    assert Experiment(epochs=0.5) == config.from_dict(
        config.to_dict(Experiment(epochs=0.5))
    )
    for whole in (Experiment(epochs=5.0), tiny.parsed("--epochs", "5")):
        assert type(whole.epochs) is int
    assert config.digest(Experiment(epochs=5.0)) == config.digest(Experiment(epochs=5))


def test_an_unknown_model_needs_a_task():
    own, known = Experiment(model="mine"), Experiment(model="mlp:hidden=(8,)")
    checks.check(own, own_model=True)
    with pytest.raises(ValueError, match=r"'mine'; .*task=\.\.\.\) in Python$"):
        checks.check(own)
    with pytest.raises(ValueError, match="but a task is given"):
        checks.check(known, own_model=True)


def test_the_defaults_pass_and_an_int_passes_for_a_float():
    checks.check(Experiment())
    checks.check(Experiment(lr=1, test=0, algorithm="ditto:lam=1"))


def test_options_of_the_command_line_are_the_settings():
    changed = {k: v for k, v in CHANGED.items() if k != "steps"}
    experiment = Experiment(**changed | {"algorithm": "ditto:lam=0.5"})
    flags = tiny.options(experiment)
    for name in (
        "drop-stragglers",
        "stratified",
        "eval-after-training",
        "dissimilarity",
        "keep-optimizer",
    ):
        at = flags.index(f"--{name}")
        assert flags.pop(at + 1) == "True"
    read = tiny.parsed(*flags)
    assert checks.resolve(read) == checks.resolve(experiment)


def test_none_can_be_written_on_the_command_line():
    read = tiny.parsed("--epochs", "None", "--steps", "3", "--clients", "None")
    assert (read.epochs, read.steps, read.clients) == (
        None,
        3,
        None,
    )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("command", ["run --config {0}/config.json", "resume {0}"])
def test_a_wrong_config_is_one_line(name, command, tmp_path):
    text, message = CONFIGS[name]
    (tmp_path / "config.json").write_text(text)
    code, out, errors = tiny.main(*command.format(tmp_path).split())
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert re.search(message, errors), errors
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_numbers_of_numpy_are_taken_as_pythons_own():
    job = Experiment(
        Component("ditto", {"lam": np.array(0.25)}),
        rounds=np.int64(2),
        lr=np.float32(0.5),
        stratified=np.bool_(True),
    )
    assert job == Experiment("ditto:lam=0.25", rounds=2, lr=0.5, stratified=True)
    assert type(job.rounds) is int
