"""Every code block of the README and the guides runs as it stands.

Runs have two rounds of one epoch, whatever a page says, and draw no figures.
"""

import os
import re
import shlex
import tomllib

import numpy as np
import pytest

import pages
import tiny
from checkout import ROOT
from pages import PAGES, README
from pfljax import algorithms, report, sweep
from pfljax.runs import checks, settings
from pfljax.simulate import begin

FAST = ("contributing", "index", "method_table", "speed")
# First words of lines that no test runs: they install, download, or need hosts.
NOT_RUN = (
    *("#", "#!/bin/bash", "#SBATCH", "jupyter", "make", "pip", "python", "srun"),
    ".venv/bin/python",
)
LONG = {"rounds": 2, "epochs": 1}


@pytest.fixture
def here(tmp_path, folder, monkeypatch):
    """A folder to run in, where runs are short and nothing is drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write_run_report", _blank)
    monkeypatch.setattr(report.write, "_save_figures", lambda *given: [])
    monkeypatch.setattr(begin, "validate", _short(begin.validate))
    monkeypatch.setattr(sweep, "sweep", _short_sweep(sweep.sweep))
    before = dict(os.environ)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


def _blank(folder, *_, **__):
    (folder / "report.html").write_text("")
    return ""


def _short(validate):
    def wrapped(experiment, *rest):
        return validate(experiment.replace(**LONG), *rest)

    return wrapped


def _short_sweep(run_all):
    def wrapped(base, over, **settings):
        return run_all(base.replace(**LONG), over, **settings | {"quiet": True})

    return wrapped


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.stem in FAST else pytest.mark.slow)
        for page in PAGES
    ],
    ids=lambda page: page.stem,
)
def test_a_page_runs(page, here):
    blocks = pages.blocks(page)
    ran = pages.run(blocks, {"__name__": page.stem})
    assert ran == sum(block.language in pages.RUN for block in blocks)


def test_what_is_not_run_needs_a_network_hosts_or_long():
    for block in (block for page in PAGES for block in pages.blocks(page)):
        # "py" needs what is not installed (tests/sweep/test_optuna.py), "toml" is read
        # by a later block, and "text" is what a command printed.
        if block.language in (*pages.RUN, "py", "toml", "text"):
            continue
        assert block.language == "bash", f"{block.place} is of no known language"
        for line in block.code.replace("\\\n", " ").splitlines():
            is_long = re.match(r"pfljax (prepare|bench|run --distributed)", line)
            sources = "shakespeare_roles|pfllib|leaf|huggingface|hdf5"
            needs = re.search(rf"--(coordinator|dataset ({sources}))", line)
            first = line.split()[0]
            assert first in NOT_RUN or is_long or needs, f"{block.place}: {line}"


def test_the_readme_is_short_and_its_method_is_the_file():
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 150
    path = re.search(r"This is `(.*?)`", text)[1]
    assert (ROOT / path).read_text("utf-8") in text
    count = re.search(r"It has (\d+) methods", text)[1]
    assert int(count) == len(algorithms.methods())


@pytest.mark.slow
def test_the_readme_prints_the_accuracy_of_the_personal_models(here, capsys):
    (block,) = (b for b in pages.blocks(README) if "from_arrays" in b.code)
    head, _, _ = block.code.partition("methods =")
    exec(head, {})
    printed = float(capsys.readouterr().out)
    with np.load("runs/mine/clients.npz") as arrays:
        personal = arrays["personal/test/accuracy"][-1].mean()
        server = arrays["server/test/accuracy"][-1].mean()
    assert printed == pytest.approx(personal, abs=1e-6)
    # Else the line would also be right with the other model.
    assert abs(personal - server) > 0.05


@pytest.mark.slow
def test_the_readmes_python_goes_on(here, capsys):
    """A second time it finds its runs, and says the same."""
    (block,) = (b for b in pages.blocks(README) if "from_arrays" in b.code)
    assert len(block.code.splitlines()) < 15
    said = []
    for _ in range(2):
        pages.run([block], {})
        said.append(capsys.readouterr().out)
    assert "fedper" in said[0]
    assert said[0] == said[1]


def test_contributing_names_the_lowest_versions_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = re.findall(r"([\w-]+)>=([\d.]+)", " ".join(project["dependencies"]))
    text = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    sentence = re.search(r"lowest versions of .*?, such as (.*?), on", text, re.DOTALL)
    named = re.findall(r"\b([a-z-]+)\s(\d[\d.]*\d)", sentence[1])
    assert {"jax", "flax", "numpy"} <= dict(named).keys()
    assert set(named) <= set(bounds)


def test_every_page_is_reached_and_every_link_leads_somewhere():
    nav = (ROOT / ".ci" / "mkdocs.yml").read_text("utf-8").partition("nav:")[2]
    readme = README.read_text("utf-8")
    for page in PAGES[1:]:
        assert page.name in nav
    for target in re.findall(r"\]\((?!http)([^)#]+)", readme):
        assert (ROOT / target).exists(), target


def test_names_for_users_of_other_libraries_exist():
    """Every option and method in the table's first column exists."""
    page = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (.*?) \|", page, re.MULTILINE)
    spans = [span for cell in cells for span in re.findall("`(.+?)`", cell)]
    options = [shlex.split(span) for span in spans if span.startswith("--")]
    methods = [span for span in spans if re.fullmatch(r"[a-z]+:\S+=\S+", span)]
    assert len(options) > 10
    assert len(methods) > 3
    for name, *values in options:
        assert name.strip("-").replace("-", "_") in settings.FIELDS
        if values:
            checks.check(tiny.parsed(name, *values))
    for method in methods:
        checks.check(tiny.parsed("--algorithm", method))


def test_where_is_it_leads_to_what_is_there():
    rows = re.search(r"## Where is.*?\n## ", README.read_text("utf-8"), re.DOTALL)
    assert rows is not None
    places = re.findall(r"`([a-z_]+/[\w/.]*)`", rows[0].partition("|---|")[2])
    assert len(places) > 6
    for place in places:
        assert (ROOT / "pfljax" / place).exists(), place
