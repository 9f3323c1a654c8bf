"""`pfljax run FILE`: its settings are the defaults, and options beside it go before."""

import re

import pytest

import tiny
from pfljax import Experiment
from pfljax.cli import options, parser
from pfljax.runs import checks, config
from pfljax.runs.folder import write_json

WRITTEN = Experiment(
    "ditto:lam=0.5", dataset="synthetic:examples=30,alpha=1.0", rounds=7, epochs=None,
    steps=3, lr=1e-7, channel="clip:norm=2.0 gaussian:std=0.1", stratified=True,
    log="csv,wandb:project=mine", out="runs/mine",
)  # fmt: skip


@pytest.fixture
def file(tmp_path):
    """The config.json of a run, as its folder has it."""
    return written(checks.resolve(WRITTEN), tmp_path)


def written(experiment, folder):
    write_json(folder / "config.json", config.to_dict(experiment))
    return str(folder / "config.json")


def test_a_file_alone_is_its_run(file):
    settings_read = tiny.parsed("--config", file)
    assert checks.resolve(settings_read) == checks.resolve(WRITTEN)


def test_options_go_before_the_file(file):
    settings_read = tiny.parsed("--rounds", "9", "--config", file, "--no-stratified")
    expected = WRITTEN.replace(rounds=9, stratified=False)
    assert checks.resolve(settings_read) == checks.resolve(expected)
    settings_read = tiny.parsed(
        "--config", file, "--channel", "qsgd", "--out", "runs/other"
    )
    expected = WRITTEN.replace(channel="qsgd", out="runs/other")
    assert checks.resolve(settings_read) == checks.resolve(expected)


def test_another_method_has_its_own_options_and_label(file):
    settings_read = tiny.parsed("--config", file, "--algorithm", "fedprox:mu=1.0")
    assert checks.resolve(settings_read) == checks.resolve(
        WRITTEN.replace(algorithm="fedprox:mu=1.0")
    )
    assert checks.resolve(settings_read).label == "fedprox mu=1.0"


def test_a_label_that_was_given_stays(tmp_path):
    job = checks.resolve(WRITTEN.replace(label="mine"))
    settings_read = tiny.parsed(
        "--config", written(job, tmp_path), "--algorithm", "local"
    )
    assert settings_read.label == "mine"


def test_a_sweep_leaves_the_folder_of_the_file(file):
    args = ["sweep", "--config", file, "--over", "lr", "0.1"]
    for more, out in ([], None), (["--out", "runs/grid"], "runs/grid"):
        command = parser.parse([*args, *more])
        settings_read = options.to_experiment(command.keywords["settings"])
        assert checks.resolve(settings_read.replace(out="runs/mine")) == checks.resolve(
            WRITTEN
        )
        assert settings_read.out == out


STUDY = """
algorithm = "ditto:lam=0.5"
channel = ["clip:norm=2.0", "gaussian:std=0.1"]
epochs = "None"  # TOML has no null
steps = 3
lr = 1
out = "runs/study"
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return str(tmp_path / "study.toml")


@pytest.mark.parametrize("before", [[], ["--config"]])
def test_a_toml_file_has_settings_by_their_names(study, before):
    assert tiny.parsed(*before, study, "--steps", "4") == Experiment(
        "ditto:lam=0.5", channel="clip:norm=2.0 gaussian:std=0.1", epochs=None, steps=4,
        lr=1.0, out="runs/study",
    )  # fmt: skip


def test_methods_of_a_comparison_follow_its_file(study):
    command = parser.parse(["compare", study, "fedper", "local", "--lr", "0.5"])
    assert command.keywords["methods"] == ("fedper", "local")
    settings_read = options.to_experiment(command.keywords["settings"])
    assert (settings_read.steps, settings_read.lr) == (3, 0.5)
    assert settings_read.out == "runs/study"  # no run has it, unlike a config.json's


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("round = 3", "unknown setting 'round'.*did you mean"),
        ("rounds = 'ten'", "rounds is 'ten'; expected a whole"),
        ("algorithm = 3", "algorithm is 3; expected a name"),
        ("channel = [1]", r"channel is \(1,\); expected a name, or several"),
        ("rounds =", "Invalid value"),
        ("[method]\nrounds = 3", "unknown setting 'method'"),
        (b"label = '\xff'", "codec can't decode"),
        (None, "is no file; give a .toml file of settings, or"),
    ],
)
@pytest.mark.parametrize("command", ["run", "sweep", "compare"])
def test_a_wrong_file_is_refused_in_one_line(text, message, command, tmp_path):
    file = tmp_path / "study.toml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, errors = tiny.main(command, file)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert re.search(f"{file}.*{message}", errors), errors
