import inspect
from typing import Any, Literal, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny
from pfljax import Experiment, algorithms, channel, data, models
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import toy
from pfljax.core import annotations, components, factories, requirements
from pfljax.core.components import Component
from pfljax.data import label_noise
from pfljax.runs import checks


def test_every_method_is_found_by_its_file():
    names = {
        "local", "fedavg", "fedprox", "scaffold", "ditto", "fedper", "ifca",
        "superfed", "per_fedavg",
    }  # fmt: skip
    assert names <= set(algorithms.methods())


def test_a_method_without_docstring_has_options_all_the_same(folder):
    bare = "def bare(task, local, *, rate=1.0):\n    return None\n"
    (folder / "bare.py").write_text(bare)
    experiment = tiny.parsed("--algorithm", "bare.py:bare:rate=2")
    assert experiment.algorithm.options == {"rate": 2}


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("iid", Component("iid")),
        ("shards:per_client=2", Component("shards", {"per_client": 2})),
        (
            "scaffold: server_lr = 0.5 , option=I",
            Component("scaffold", {"option": "I", "server_lr": 0.5}),
        ),
        (
            "x:flag=True,none=None,low=-1e-3",
            Component("x", {"flag": True, "none": None, "low": -1e-3}),
        ),
        ("a/b.py:mine", Component("a/b.py:mine")),
        ("a.b:mine:x=1,y=c.d:e", Component("a.b:mine", {"x": 1, "y": "c.d:e"})),
        ("tfds/name:every=2", Component("tfds/name", {"every": 2})),
    ],
)
def test_choices_are_read(text, choice):
    assert components.parse(text) == choice
    assert components.parse(str(choice)) == choice


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clip:norm=1,norm=2", "'clip:norm=1,norm=2' gives norm twice; give it once"),
        ("mlp:hidden={[1]:2}", r"'\{\[1\]:2\}' is no value of an option; expected a"),
        ("mlp:hidden={1: 2}", "is no value of an option"),
        ("mlp:hidden=[[8]]", "is no value of an option"),
        ("mlp:hidden=b'8'", "is no value of an option"),
        ("mlp:hidden=" + "-" * 9999 + "1", "is no value of an option"),
    ],
)
def test_values_that_no_option_has(text, expected):
    with pytest.raises(ValueError, match=expected):
        components.parse(text)


def test_lists_become_tuples_for_choices_are_hashed():
    assert Component("mlp", {"hidden": [8, 8]}) == Component("mlp", {"hidden": (8, 8)})
    assert {components.parse("mlp:hidden=[8]")} == {Component("mlp", {"hidden": [8]})}


def test_several_names_of_ones_own_are_split_at_spaces_and_commas():
    texts = ["a.py:f:x=1,y=2", "b.py:g", "csv", "c.d:h:z=0.5"]
    choices = components.convert_all(",".join(texts))
    assert choices == components.convert_all(" ".join(texts))
    assert list(map(str, choices)) == texts


@pytest.mark.parametrize("text", ["shards:2", "shards:=2", "shards:per_client="])
def test_malformed_choices(text):
    with pytest.raises(ValueError, match="not of the form name:key=value"):
        components.parse(text)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(
        ValueError,
        match=r"'dito'; did you mean 'ditto'\?$",
    ):
        algorithms.method("dito")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            Component("ditto", {"lamb": 1.0}),
            "parameter 'lamb'; known: .*lam, .*mean 'lam'",
        ),
        (Component("ditto", {"lam": "big"}), "lam is 'big'; expected a number"),
        (Component("ditto", {"lam": True}), "lam is True; expected a number"),
        (Component("ditto", {"lam": "a"}), "lam is .a.; expected a number"),
    ],
)
def test_wrong_options(choice, message):
    with pytest.raises(ValueError, match=message):
        factories.check("algorithm", choice, algorithms.methods()["ditto"])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            Component("ditto", {"lam": -1.0}),
            "lam is -1.0; expected a finite number >= 0",
        ),
        (
            Component("ditto", {"lam": float("inf")}),
            "lam is inf; expected a finite number",
        ),
        (
            Component("ditto", {"personal_epochs": -1}),
            "is -1; expected at least 0, or None",
        ),
        (
            Component("apfl", {"alpha": 1.5}),
            "alpha is 1.5; expected a number from 0 to 1",
        ),
        (
            Component("apfl", {"alpha": float("nan")}),
            "alpha is nan; expected a number from",
        ),
        (Component("ifca", {"clusters": 0}), "clusters is 0; expected at least 1"),
        (
            Component("per_fedavg", {"delta": 0.0}),
            "delta is 0.0; expected a finite number > 0",
        ),
        (
            Component("fedavg", {"finetune": 2**31}),
            "finetune is 2147483648; .* below 2.*31",
        ),
        (Component("ditto", {"personal_epochs": 2**40}), r"a number below 2\*\*31"),
        (
            Component("ifca", {"clusters": 2**31}),
            r"clusters is .* a number below 2\*\*31",
        ),
    ],
)
def test_options_out_of_range(choice, message):
    with pytest.raises(ValueError, match=message):
        factories.check("algorithm", choice, algorithms.method(choice.name))


def test_every_number_of_a_method_has_a_range_that_holds_its_default():
    for name, factory in algorithms.methods().items():
        for option, parameter in factories.options(factory).items():
            value = parameter.default
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            if get_origin(parameter.annotation) is Literal:  # it lists the numbers
                continue
            kinds = annotations.alternatives(parameter.annotation)
            assert any(kind.ranges for kind in kinds), (name, option)
            factories.check("algorithm", Component(name, {option: value}), factory)


def test_right_options():
    factory = algorithms.methods()["ditto"]
    factories.check(
        "algorithm", Component("ditto", {"lam": 1, "personal_epochs": 2}), factory
    )
    names = ["lam", "personal_epochs"]
    assert list(factories.options(factory)) == names


def test_what_the_experiment_fills_in_is_no_option():
    factory = algorithms.methods()["superfed"]
    assert "rounds" not in factories.options(factory)
    assert factories.select_context(factory, rounds=7, seed=1) == {"rounds": 7}
    assert factories.select_context(algorithms.methods()["fedavg"], rounds=7) == {}


def test_an_option_without_a_type_takes_any_value(folder):
    (folder / "plain.py").write_text("def plain(task, local, *, a=1.0):\n    pass\n")
    factory = algorithms.method("plain.py:plain")
    for value in (1.0, 2, "x"):
        factories.check("algorithm", Component("plain.py:plain", {"a": value}), factory)


def built(name, **options):
    """A method's record, by a call of its factory."""
    return algorithms.method(name)(toy.quadratic(), toy.full_batch(), **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ditto", {"lam": -1}, "^ditto: lam is -1; expected a finite number >= 0"),
        ("ditto", {"lam": np.float32(-1)}, "^ditto: lam is -1.0; expected"),
        ("ditto", {"lam": jnp.float32(-1)}, "^ditto: lam is -1.0; expected"),
        ("ditto", {"lam": jnp.ones(2)}, "lam is Array.*; expected a number"),
        ("ditto", {"lam": "x"}, "^ditto: lam is 'x'; expected a number, such as 0.1$"),
        ("ifca", {"clusters": True}, "clusters is True; expected a whole number"),
        ("fedper", {"finetune": 1.5}, "finetune is 1.5; expected a whole number"),
    ],
)
def test_a_factory_checks_its_own_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        built(name, **options)


def list_factories():
    """(name, factory, its first arguments) of all that are chosen by name."""
    labels = np.arange(100) % 10
    methods = algorithms.methods().items()
    made = [(*pair, (toy.quadratic(), toy.full_batch())) for pair in methods]
    made += [(*pair, ()) for pair in channel.CHANNELS.items()]
    made += [(*pair, (10,)) for pair in models.MODELS.items()]
    made += [(*pair, (10,)) for pair in label_noise.NOISES.items()]
    made += [(*pair, (labels, 4, 0)) for pair in data.PARTITIONS.items()]
    return made


def test_no_factory_with_options_lacks_the_check():
    class Unknown:
        pass

    for about, factory, arguments in list_factories():
        for option, parameter in factories.options(factory).items():
            if parameter.annotation is Any:
                continue
            refusal = f"{about}: {option} is <.*Unknown.*; expected"
            with pytest.raises(ValueError, match=refusal):
                factory(*arguments, **{option: Unknown()})


def test_every_number_of_a_factory_has_a_range():
    for about, factory, _ in list_factories():
        for option, parameter in factories.options(factory).items():
            for kind in annotations.alternatives(parameter.annotation):
                assert kind.ranges or kind.type not in (int, float), (about, option)


def test_numbers_that_jax_traces_are_let_through():
    """A sweep has checked every point of them before."""

    def value_of(lam):
        built("ditto", lam=lam)
        return lam

    batch = jnp.asarray([-1.0, 1.0])
    assert jax.jit(value_of)(-1.0) == -1
    assert jax.vmap(value_of)(batch).tolist() == [-1, 1]
    assert jax.eval_shape(value_of, 1.0).shape == ()


def test_a_method_without_the_decorator_is_checked_at_the_edge(folder):
    plain = (
        "from pfljax.core.ranges import NotNegative\n"
        "def undecorated(task, local, *, lam: NotNegative = 0.1):\n"
        "    return lam\n"
    )
    (folder / "undecorated.py").write_text(plain)
    with pytest.raises(ValueError, match=r":undecorated': lam is -1.0; expected"):
        checks.check(Experiment("undecorated.py:undecorated:lam=-1.0"))
    assert algorithms.method("undecorated.py:undecorated")(None, None, lam=-1.0) == -1.0


def test_a_checked_factory_keeps_its_signature():
    parameters = inspect.signature(algorithms.method("ditto")).parameters
    assert list(parameters) == ["task", "local", "lam", "personal_epochs"]
    assert algorithms.method("ditto").__name__ == "ditto"


def test_a_long_list_of_names_is_cut():
    known = {
        f"{'name':>4}{chr(97 + i)}{chr(97 + j)}": 0 for i in range(9) for j in range(9)
    }
    text = requirements.unknown("thing", known, "x")
    assert text.startswith("unknown thing 'x'; known: nameaa, nameab, ")
    listed, more = text.split("known: ")[1].split(" and ")
    count = len(listed.split(", "))
    assert more == f"{81 - count} more"
    assert len(listed) < requirements.LONGEST


def test_a_factory_with_its_options_alone_makes_a_component():
    made = ditto(lam=1)
    assert made == Experiment("ditto:lam=1").algorithm
    assert (str(made), repr(made)) == ("ditto:lam=1", "ditto(lam=1)")
    assert {made, Component("ditto", {"lam": 1})} == {made}
    algorithm = made(toy.quadratic(), toy.full_batch())
    assert type(algorithm) is type(built("ditto", lam=1.0))
    with pytest.raises(ValueError, match=r"ditto: unknown parameter 'lamb'.*'lam'\?"):
        ditto(lamb=1)
    with pytest.raises(ValueError, match="ditto: lam is -1; expected"):
        ditto(lam=-1)
    with pytest.raises(TypeError, match="ditto is a name alone"):
        Component("ditto")(toy.quadratic(), toy.full_batch())


@pytest.mark.parametrize("settings", [{"algorithm": ditto}, {"channel": [ditto]}])
def test_a_factory_that_was_not_called_is_refused(settings):
    with pytest.raises(ValueError, match=r"got the function ditto; write ditto\(\)"):
        Experiment(**settings)
