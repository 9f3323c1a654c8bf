import importlib

import pytest

import tiny
from pfljax import algorithms, registry
from pfljax.registry import choose


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of one's own methods, forgotten afterwards."""
    package = importlib.import_module("pfljax.algorithms")
    monkeypatch.setattr(package, "__path__", list(package.__path__))
    monkeypatch.setenv("PFLJAX_METHODS", str(tmp_path))
    return tmp_path


def test_every_method_is_found_by_its_file():
    names = {
        "local", "fedavg", "fedprox", "scaffold", "ditto", "fedper", "ifca",
        "superfed", "per_fedavg",
    }  # fmt: skip
    assert names <= set(algorithms.methods())


def test_a_method_in_a_folder_of_ones_own(folder):
    same = "from pfljax.algorithms.local import local as mine"
    (folder / "mine.py").write_text(same)
    known = algorithms.methods()
    assert known["mine"] is known["local"]
    assert list(algorithms.methods()) == list(known)


def test_a_method_without_docstring_has_options_all_the_same(folder):
    bare = "def bare(task, local, *, rate=1.0):\n    return None\n"
    (folder / "bare.py").write_text(bare)
    told = tiny.parsed("--algorithm", "bare", "--rate", "2")
    assert dict(told.method.hyper) == {"rate": 2.0}


def test_a_file_without_its_method_is_told(folder):
    (folder / "helpers.py").write_text("")
    (folder / "_hidden.py").write_text("")
    with pytest.raises(ValueError, match=r"no function 'helpers'.* begins with _"):
        algorithms.methods()


def test_a_folder_of_methods_that_does_not_exist_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PFLJAX_METHODS", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="none', which is no folder"):
        algorithms.methods()


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("iid", choose("iid")),
        ("shards:per_client=2", choose("shards", per_client=2)),
        (
            "scaffold: server_lr = 0.5 , option=I",
            choose("scaffold", option="I", server_lr=0.5),
        ),
        (
            "x:flag=True,none=None,low=-1e-3",
            choose("x", flag=True, none=None, low=-1e-3),
        ),
    ],
)
def test_choices_are_read(text, choice):
    assert registry.parse(text) == choice
    assert registry.parse(str(choice)) == choice


@pytest.mark.parametrize("text", ["shards:2", "shards:=2", "shards:per_client="])
def test_malformed_choices(text):
    with pytest.raises(ValueError, match="not of the form name:key=value"):
        registry.parse(text)


def test_an_unknown_name_is_told_the_nearest_and_all():
    with pytest.raises(
        ValueError,
        match=r"unknown algorithm 'dito'; known: apfl, .*did you mean 'ditto'",
    ):
        algorithms.method("dito")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (choose("ditto", lamb=1.0), "parameter 'lamb'; known: .*lam, .*mean 'lam'"),
        (choose("ditto", lam="big"), "lam is 'big'; expected float"),
        (choose("ditto", lam=True), "lam is True; expected float"),
        (choose("ditto", lam="a"), "lam is .a.; expected float"),
    ],
)
def test_wrong_options(choice, message):
    with pytest.raises(ValueError, match=message):
        registry.check("algorithm", choice, algorithms.methods()["ditto"])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (choose("ditto", lam=-1.0), "lam is -1.0; expected a finite number >= 0"),
        (choose("ditto", lam=float("inf")), "lam is inf; expected a finite number"),
        (choose("ditto", personal_epochs=-1), "is -1; expected at least 0, or None"),
        (choose("apfl", alpha=1.5), "alpha is 1.5; expected a number from 0 to 1"),
        (choose("apfl", alpha=float("nan")), "alpha is nan; expected a number from"),
        (choose("ifca", clusters=0), "clusters is 0; expected at least 1"),
        (choose("per_fedavg", delta=0.0), "delta is 0.0; expected a finite number > 0"),
    ],
)
def test_options_out_of_range(choice, message):
    with pytest.raises(ValueError, match=message):
        registry.check("algorithm", choice, algorithms.method(choice.name))


def test_every_number_of_a_method_has_a_range_that_holds_its_default():
    for name, factory in algorithms.methods().items():
        for option, parameter in registry.options(factory).items():
            value = parameter.default
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            (limits,) = registry._ranges(parameter)
            assert limits.holds(value), (name, option)


def test_right_options():
    factory = algorithms.methods()["ditto"]
    registry.check("algorithm", choose("ditto", lam=1, personal_epochs=2), factory)
    names = ["lam", "personal_epochs"]
    assert list(registry.options(factory)) == names


def test_what_the_experiment_fills_in_is_no_option():
    factory = algorithms.methods()["superfed"]
    assert "rounds" not in registry.options(factory)
    assert registry.given(factory, rounds=7, seed=1) == {"rounds": 7}
    assert registry.given(algorithms.methods()["fedavg"], rounds=7) == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def broken(:", "the method 'broken' cannot be imported: .*invalid syntax"),
        ("import no_such_module", "cannot be imported: No module named 'no_such"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_line(folder, source, expected):
    (folder / "broken.py").write_text(source)
    with pytest.raises(ValueError, match=expected):
        algorithms.method("broken")


def test_an_option_without_a_type_takes_any_value(folder):
    (folder / "plain.py").write_text("def plain(task, local, *, a=1.0):\n    pass\n")
    factory = algorithms.method("plain")
    for value in (1.0, 2, "x"):
        registry.check("algorithm", choose("plain", a=value), factory)
