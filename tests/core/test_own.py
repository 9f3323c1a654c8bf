"""Functions of one's own as components: path/to/file.py:function."""

import os
import sys

import pytest

import tiny
from pfljax import Experiment, algorithms
from pfljax.core import own
from pfljax.core.components import parse

METHOD = """from pfljax.algorithms.fedavg import fedavg
from pfljax.core.factories import component

@component
def mine(task, local, *, lam: float = 1.0):
    return fedavg(task, local)
"""


def refused(name, takes=("task", "local")):
    """The message, in one line, for a name that does not load."""
    with pytest.raises(ValueError, match=r"expected|unknown|cannot") as error:
        own.load(name, takes)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_function_is_loaded_once_by_its_file_or_module(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "whole8b.py").write_text(METHOD)
    by_file = own.load("inner/whole8b.py:mine", ("task", "local"))
    assert own.load(f"{folder}/inner/whole8b.py:mine") is by_file
    by_module = own.load("inner.whole8b:mine")
    assert by_module is not by_file
    assert str(by_module(lam=2.0)) == "inner.whole8b:mine:lam=2.0"
    assert parse(str(by_file(lam=2.0))) == Experiment(by_file(lam=2.0)).algorithm
    assert algorithms.method(by_file().name) is by_file


def test_files_find_the_files_beside_them(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "beside8b.py").write_text("RATE = 3.0\n")
    code = "import beside8b\ndef f():\n    return beside8b.RATE\n"
    (folder / "inner" / "first.py").write_text(code)
    assert own.load("inner/first.py:f")() == 3.0


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("none.py:mine", "none.py"),
        ("none/none.py:mine", "none/none.py"),
        ("no_such8b.module:mine", "no_such8b.module"),
        ("made.py:mine", "made.py"),
        ("whole.py:mined", "did you mean 'mine'?"),
        ("whole.py:__name__", "__name__"),
    ],
)
def test_what_is_not_there(folder, name, named):
    (folder / "made.py").mkdir()
    (folder / "whole.py").write_text(METHOD)
    assert named in refused(name)


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("def broken(:", "broken.py:1: SyntaxError"),
        ("import no_such_module8b", "broken.py:1: ModuleNotFoundError"),
        ("import os\n\nos.no_such", "broken.py:3: AttributeError"),
        ("def f():\n    1 / 0\n\nf()", "broken.py:2: ZeroDivisionError"),
        ("import json\njson.loads('{')", "broken.py:2: JSONDecodeError"),
    ],
)
@pytest.mark.parametrize("name", ["pack8b/broken.py:f", "pack8b.broken:f"])
def test_a_file_that_cannot_be_imported_is_named_with_its_line(
    folder, name, source, where
):
    (folder / "pack8b").mkdir()
    (folder / "pack8b" / "broken.py").write_text(source)
    assert f"{folder}/pack8b/{where}" in refused(name)
    assert name.split(":")[0] not in sys.modules
    code, _, errors = tiny.main("run", "--algorithm", name)
    assert (code, errors.count("\n")) == (2, 1)
    assert where in errors


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_no_file(folder):
    os.mkfifo(folder / "pipe.py")
    assert "pipe.py" in refused("pipe.py:mine")


@pytest.mark.parametrize(
    "signature",
    [
        "()",
        "(task)",
        "(task, local, lam)",
        "(task, local, lam=1.0)",
        "(task, *, local)",
        "(task, local, *, lam=print)",
        "(task, local, *, lam={})",
    ],
)
def test_other_arguments_are_refused_with_their_line(folder, signature):
    (folder / "other.py").write_text(f"\ndef mine{signature}:\n    pass\n")
    assert "other.py:2" in refused("other.py:mine")


@pytest.mark.parametrize(
    "signature",
    [
        "(task, local)",
        "(a, b, *, lam)",
        "(task, local, *, rounds, sizes, lam=(1, 2))",
        "(*both, lam=None)",
    ],
)
def test_other_names_of_arguments_and_facts_of_the_run_are_taken(folder, signature):
    (folder / "fine.py").write_text(f"def mine{signature}:\n    pass\n")
    assert callable(algorithms.method("fine.py:mine"))


def test_a_file_alone_names_no_function():
    with pytest.raises(ValueError, match=r"a/b.py:FUNCTION"):
        Experiment("a/b.py:lam=1.0")
