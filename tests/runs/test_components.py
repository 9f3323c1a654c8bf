"""Names and options of components are checked before a folder is opened."""

import pytest

import tiny
from pfljax import Experiment
from pfljax.core import optimizers
from pfljax.runs import checks, config, sinks
from pfljax.runs.folder import write_json


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"partition": "shardz"}, "unknown partition 'shardz'; did you mean 'shards'?"),
        ({"partition": "shards:per=2"}, "partition 'shards': unknown parameter"),
        ({"model": "mpl"}, "unknown model 'mpl'; did you mean 'mlp'?"),
        ({"model": "mlp:hiden=(8,)"}, "model 'mlp': unknown parameter 'hiden'"),
        ({"model": "auto:hidden=(8,)"}, "model 'auto': unknown parameter 'hidden'"),
        (
            {"noise": "pairs"},
            "unknown noise 'pairs'; known: none, pair, poison, symmetric",
        ),
        ({"dataset": "digits:size=3"}, "dataset 'digits': unknown parameter"),
        (
            {"selection": "by_sizes"},
            "unknown selection 'by_sizes'; known: availability, b",
        ),
        ({"channel": "clap"}, "unknown channel 'clap'; did you mean 'clip'?"),
        (
            {"optimizer": "adamm"},
            "'adamm'; did you mean 'adam'?",
        ),
        ({"optimizer": "softmax_cross_entropy"}, "unknown optimizer 'softmax_cross_e"),
        ({"optimizer": "adam:b3=0.1"}, "'adam': unknown parameter 'b3'; known: b1"),
        ({"optimizer": "adam:b1=x"}, "optimizer 'adam': b1 is 'x'; expected a number"),
        ({"optimizer": "adam:learning_rate=0.1"}, "give it there: --lr 0.1"),
        ({"log": "csv,csv"}, "log has csv 2 times; give it once"),
        ({"log": "wandb:projekt=a"}, "known: project; did you mean 'project'?"),
        ({"optimizer": "adam:b1=2"}, "optimizer 'adam': b1 is 2; expected a"),
        (
            {"mode": "fedbuf"},
            "unknown mode 'fedbuf'; known: fedasync, fedbuff, sync; d",
        ),
        ({"optimizer": "sgd:b1=2"}, "sgd takes its options from momentum and"),
    ],
)
def test_a_wrong_name_is_refused_before_the_folder_is_looked_at(
    tmp_path, wrong, message
):
    job = Experiment("local", out=str(tmp_path))
    write_json(tmp_path / "config.json", config.to_dict(checks.resolve(job)))
    code, out, errors = tiny.main("run", *tiny.options(job.replace(**wrong)))
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert message in errors


def test_what_is_given_in_python_has_any_name():
    job = Experiment(dataset="mine", partition="by hand", model="own")
    checks.check(job, own_model=True, own_data=True)
    with pytest.raises(ValueError, match="unknown partition 'by hand'"):
        checks.check(job, own_model=True)


def test_every_tenth_row_of_any_data_set():
    checks.check(Experiment(dataset="digits:every=10"))
    checks.check(Experiment(dataset="kmnist:every=10"))  # of TFDS


@pytest.mark.filterwarnings("ignore")  # of optax, about its own
def test_every_optimizer_that_is_listed_can_be_chosen():
    known = optimizers.known_of_optax()
    assert {"adam", "adamw", "nadam", "sgd", "rmsprop"} <= set(known)
    for name in known:
        checks.check(Experiment(optimizer=name))
        checks.check(Experiment(server_optimizer=f"{name}:learning_rate=0.1"))


def test_a_sink_with_options_is_taken():
    for name in sinks.SINKS:
        checks.check(Experiment(log=name))
    checks.check(Experiment(log="csv,wandb:project=mine"))
