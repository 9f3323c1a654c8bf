"""`--config FILE`: its settings are the defaults, and options beside it go before."""

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
