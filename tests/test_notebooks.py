"""The notebooks run at a small size, and lie here as they ran at full size."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib

import nbformat
import pytest
from nbclient import NotebookClient

from checkout import ROOT

FOLDER = ROOT / "notebooks"
NAMES = (
    "ablations", "add_a_method", "checkpoint_resume", "connectivity", "heterogeneity",
    "quickstart",
)  # fmt: skip
MACHINE = re.compile(r"(?<![\w.:/])/(root|tmp|home|Users|opt|usr|var|mnt|work)/")


def test_all_notebooks_are_tested():
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb"))) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_at_a_small_size_and_again(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PFLJAX_SMALL", "1")
    first = _execute(name, tmp_path)
    assert (tmp_path / "runs" / "small" / name).is_dir()
    # Once more, with the runs that are finished: tables are tables still.
    for cell, again in zip(first, _execute(name, tmp_path), strict=True):
        assert _measure(cell) == _measure(again), cell.source


def _execute(name, folder):
    """The cells of a notebook after it has run in a folder."""
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(book, timeout=600, kernel_name="python3", resources=place)
    return client.execute().cells  # raises where a cell does


def _measure(cell):
    """The number of lines that a cell prints, and the kinds of its other outputs."""
    outputs = cell.get("outputs", ())
    printed = "".join(out.text for out in outputs if out.output_type == "stream")
    return printed.count("\n"), [sorted(out.data) for out in outputs if "data" in out]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_was_executed_whole_and_in_order(name):
    cells = _code(name)
    counts = [cell.execution_count for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    for cell in cells:
        kinds = {output.output_type for output in cell.outputs}
        assert "error" not in kinds
        assert kinds or not _shows(cell.source), cell.source
        streams = [out.name for out in cell.outputs if out.output_type == "stream"]
        assert "stderr" not in streams, cell.source  # warnings, progress
    pictures = [out for cell in cells for out in cell.outputs if "data" in out]
    shown = name == "checkpoint_resume" or any("image/png" in o.data for o in pictures)
    assert shown, "no figure"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_small_and_names_no_machine(name):
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < 1e6
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells]
    for cell in _code(name):
        texts += [json.dumps(_without_pictures(output)) for output in cell.outputs]
    found = [match.group() for text in texts for match in MACHINE.finditer(text)]
    assert not found


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_extra_is_enough_for_a_notebook(name):
    """Whoever has no checkout has neither tests/ nor what they need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["optional-dependencies"]["notebook"] == ["jupyterlab"]
    needed = [re.split(r"[\[>=<~ ]", text)[0] for text in project["dependencies"]]
    there = {"pfljax", "IPython", *needed, *sys.stdlib_module_names}
    assert _imported(name) - there == set()


@pytest.mark.slow
def test_conformance_needs_no_checkout():
    """Its toy is in the package, and pytest is no dependency of that."""
    code = (
        "import sys\n"
        "for name in ('pytest', '_pytest', 'hypothesis'): sys.modules[name] = None\n"
        "from pfljax import conformance\n"
        "import pfljax.conformance.laws, pfljax.conformance.toy\n"
        "print(sorted(n for n in sys.modules if n.split('.')[0] in ('tests', 'tiny')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr


def _imported(name):
    """The packages that the cells of a notebook import, whole files of them too."""
    found = set()
    for cell in _code(name):
        lines = [line for line in cell.source.splitlines() if line[:1] not in "%!"]
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.partition(".")[0])
    return found


def _code(name):
    cells = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


def _shows(source):
    """Whether a cell prints, or ends in an expression."""
    if source.startswith("%%"):
        return True
    lines = [line for line in source.splitlines() if not line.startswith("%")]
    body = ast.parse("\n".join(lines)).body
    printed = [n for part in body for n in ast.walk(part) if _prints(n)]
    return bool(printed) or isinstance(body[-1], ast.Expr)


def _prints(node):
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"


def _without_pictures(output):
    data = {k: v for k, v in output.get("data", {}).items() if "image" not in k}
    return {**output, "data": data}
