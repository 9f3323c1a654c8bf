"""Arguments of wrong types are one line: what was expected, what came, what to do."""

import re

import jax
import numpy as np
import pytest
from flax import linen, nnx

import tiny
from pfljax import Experiment, data, models, run
from pfljax.core.components import Component
from pfljax.models import task, task_from_nnx
from pfljax.simulate.arguments import check_dealing
from pfljax.simulate.compare import compare, grid
from pfljax.simulate.export import load_params, load_task, personal_model, server_model
from pfljax.sweep import sweep

X, Y = np.ones((8, 4), np.float32), np.arange(8) % 2
JOB = Experiment(out="/proc/never")
A_MODULE = linen.Dense(2)


def net(size=3):
    """An NNX module, made."""
    return nnx.Linear(4, size, rngs=nnx.Rngs(0))


RUNS = {
    "none": ((None,), {}, "experiment is None, of type NoneType; expected an Experim"),
    "dict": (({"rounds": 3},), {}, "experiment is {'rounds': 3}, of type dict"),
    "name": (("fedavg",), {}, "is 'fedavg', of type str; .* such as Experiment"),
    "arrays": (
        (JOB, data.from_arrays(X, Y)),
        {},
        "federation is .*; expected a Federation: data.fed",
    ),
    "tuple": (
        (JOB, (X, Y)),
        {},
        "federation is .*; expected a Federation: data.federate",
    ),
    "module": ((JOB,), {"task": A_MODULE}, "task is .*, of type Dense; .* models.task"),
    "task-name": ((JOB,), {"task": "mlp"}, "task is 'mlp', of type str; expected a T"),
    "int": ((Experiment(Component("fedavg", {1: 2})),), {}, "1 is not a name"),
}
TASKS = {
    "int": (4, r"input_shape is 4, of type int; .* such as \(8,\)"),
    "none": (None, "input_shape is None"),
    "negative": ((-4,), r"input_shape is \(-4,\); expected the shape of one example"),
    "zero": ((0,), r"input_shape is \(0,\); expected"),
    "text": (("a",), r"input_shape is \('a',\); expected"),
    "float": ((4.0,), r"input_shape is \(4.0,\); expected"),
}
COMPARISONS = {
    "none": (([], [0]), {}, r"experiments is empty; expected a list of them: \[an"),
    "one": ((JOB, [0]), {}, "experiments is .*, of type Experiment; expected a list"),
    "names": ((["fedavg"], [0]), {}, "one of the experiments is 'fedavg', of type str"),
    "name": (("fedavg", [0]), {}, "experiments is 'fedavg', of type str; .* a list"),
    "seed": (([JOB], 0), {}, r"seeds is 0, of type int; expected a list .* \[0, 1, 2"),
    "no-seeds": (([JOB], []), {}, "seeds is empty; expected a list"),
    "seed-text": (([JOB], "01"), {}, "seeds is '01', of type str"),
    "seed-twice": (([JOB], [0, 0]), {}, r"seeds is \[0, 0\]; expected each seed once"),
    "seed-float": (([JOB], [0.5]), {}, "one of the seeds is 0.5, of type float"),
    "federation": (
        ([JOB], [0]), {"federation": 3}, "federation is .*; expected a Federation"
    ),
    "federation-none": (
        ([JOB], [4]), {"federation": lambda seed: None},
        "federation is .*; expected a Federation",
    ),
    "federation-of-nothing": (
        ([JOB], [4]), {"federation": lambda: None},
        r"federation takes \(\); expected a function of the seed",
    ),
    "out": (([JOB], [0], None), {}, "out is None, of type NoneType; expected a folder"),
}  # fmt: skip
SWEEPS = {
    "none": ((None,), {}, "over is None, of type NoneType; .* values by name, such"),
    "list": (([1],), {}, r"over is \[1\], of type list; expected values by name"),
    "generator": (({"lr": (i for i in ())},), {}, "of type generator; expected a list"),
    "empty": (({},), {}, "over is empty; expected values by name, such as"),
    "int-name": (({1: [2]},), {}, "fedavg 1 is not a name; expected a text"),
    "number": (({"lr": 0.1},), {}, "lr is 0.1, of type float; expected a list"),
    "array": (({"lr": np.array(0.1)},), {}, "lr is 0.1, of type float; expected"),
    "federation": (
        ({"lr": [0.1]},), {"federation": 3}, "federation is .*; expected a Federation"
    ),
    "federation-none": (
        ({"lr": [0.1]},), {"federation": lambda seed: None},
        "federation is .*; expected a Federation",
    ),
    "task": (({"lr": [0.1]},), {"task": "mlp"}, "task is 'mlp', of type str"),
    "lanes": (({"lr": [0.1]},), {"lanes": "x"}, "lanes is 'x', of type str; exp"),
    "no-lane": (({"lr": [0.1]},), {"lanes": 0}, "lanes is 0; expected at least 1"),
    "out": (({"lr": [0.1]},), {"out": 3}, "out is 3, of type int; expected a folder"),
}  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())[0]


def refusal(function, *args, **options):
    """The message in which the call ends: one line of bearable length."""
    with pytest.raises(ValueError, match=r"\w") as error:
        function(*args, **options)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize("name", RUNS)
def test_arguments_of_run(name):
    args, options, message = RUNS[name]
    text = refusal(run, *args, **options)
    assert re.search(message, text)


@pytest.mark.parametrize("name", TASKS)
def test_shapes_of_a_task(name):
    shape, message = TASKS[name]
    text = refusal(task, models.model("mlp", 3), shape)
    assert re.search(message, text)
    text = refusal(task_from_nnx, nnx.Linear, shape)
    assert re.search(message, text)


@pytest.mark.parametrize("factory", [net(), 3, None])
def test_a_factory_is_a_function(factory):
    text = refusal(task_from_nnx, factory, (4,))
    assert re.search("factory is .*; expected a function nnx.Rngs", text)


class Bare(nnx.Module):
    """It does not take nnx.Rngs."""

    def __init__(self):
        pass


def test_a_module_that_cannot_be_made():
    text = refusal(task_from_nnx, Bare, (4,))
    assert re.search("factory takes .*; expected a function nnx.Rngs", text)
    text = refusal(task, models.Network(A_MODULE, 3), (4,))
    assert re.search("the module's head is 3, of type int; expected a module", text)


def test_raw_examples_are_no_batch():
    model = task(models.model("mlp", 3), (4,))
    text = refusal(model.predict, model.init(jax.random.key(0)), X)
    assert re.search("batch is .*, of type ndarray; expected a Batch: Batch.full", text)


def test_a_data_set_has_a_name():
    text = refusal(data.load, 3)
    assert text == (
        "name is 3, of type int; expected that of a data set, such as 'digits'"
    )


def test_a_task_of_another_library():
    text = refusal(task, "mlp", (4,))
    assert re.search("module is str", text)
    text = refusal(models.model, "mlp", "x")
    assert re.search("num_classes is 'x'; expected a whole number", text)


@pytest.mark.parametrize("name", COMPARISONS)
def test_arguments_of_compare(name):
    (experiments, seeds, *out), options, message = COMPARISONS[name]
    folder = out[0] if out else "/proc/never"
    text = refusal(compare, experiments, seeds, folder, **options)
    assert re.search(message, text)


def test_seeds_and_experiments_may_be_generators():
    experiments = grid((JOB.replace(label=name) for name in "ab"), iter([1, 2]), "out")
    assert [e.seed for e in experiments] == 4 * [1, 2]


@pytest.mark.parametrize("name", SWEEPS)
def test_arguments_of_sweep(name):
    args, options, message = SWEEPS[name]
    text = refusal(sweep, Experiment(), *args, **options)
    assert re.search(message, text)


def test_a_sweep_of_no_experiment():
    text = refusal(sweep, "fedavg", {"lr": [0.1]})
    assert re.search("experiment is 'fedavg', of type str", text)


@pytest.mark.parametrize("client", ["a", 1.5, None, True])
def test_a_client_is_a_number(done, client):
    text = refusal(personal_model, done, client)
    assert re.search("client is .*, of type .*; expected the number", text)


@pytest.mark.parametrize("use", [load_task, server_model, load_params])
def test_a_path_is_a_path(use):
    text = refusal(use, None)
    assert re.search("is None, of type NoneType; expected", text)
    text = refusal(use, 3)
    assert re.search("is 3, of type int; expected", text)


def test_own_data_of_an_export(done):
    text = refusal(personal_model, done, 1, 3)
    assert re.search("federation is .*; expected a Federation", text)
    text = refusal(personal_model, done, 1, None, "mlp")
    assert re.search("task is 'mlp', of type str", text)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a/b", "a/b/c")])
def test_parameters_of_another_file(names, tmp_path):
    file = tmp_path / "a.npz"
    np.savez(file, **dict.fromkeys(names, X))
    text = refusal(load_params, file)
    assert re.search("not a file of `pfljax export`", text)


def test_parameters_that_are_no_archive(tmp_path):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.txt").write_text("a")
    for name in ("a.npy", "a.txt"):
        text = refusal(load_params, tmp_path / name)
        assert re.search("no file of `pfljax export`", text)


ROWS = data.from_arrays(np.arange(90.0).reshape(30, 3), np.arange(30) % 3, name="mine")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"partition": "dirichlet:alpha=0.1"},
            "made with 'iid': it would",
        ),
        ({"dataset": "synthetic"}, "made with 'mine': it would not apply; leave it"),
        ({"test": 0.4}, "test is '0.4', but the federation that is given was made wi"),
        ({"noise": "pair:rate=0.1"}, "was made with 'none'"),
    ],
)
def test_settings_that_do_not_apply_to_the_clients_given(settings, expected):
    clients = data.federate(ROWS, "iid", num_clients=3, seed=0)
    with pytest.raises(ValueError, match=expected):
        run(JOB.replace(**settings), clients)


def test_settings_that_the_clients_given_were_made_with():
    settings = {"test": 0.4, "noise": "pair:rate=0.1"}
    dealt = data.federate(
        ROWS, "shards", num_clients=3, seed=0, params={"per_client": 3}, **settings
    )
    job = JOB.replace(dataset="mine", partition="shards:per_client=3", **settings)
    check_dealing(job, dealt)


def test_names_of_no_partition_and_no_data_set_say_nothing():
    dealt = data.federate(ROWS, "iid", num_clients=3, seed=0)
    check_dealing(JOB.replace(dataset="ours", partition="given"), dealt)
