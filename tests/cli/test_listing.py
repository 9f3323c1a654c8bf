"""The lists of components, as text."""

import sys

import pytest

import method_table
from checkout import ROOT
from pfljax import algorithms
from pfljax.cli import listing
from pfljax.data.sources.catalogue import FILES
from pfljax.runs.settings import HELP

TABLE = ROOT / "docs" / "method_table.md"


@pytest.fixture(scope="module")
def table():
    return method_table.methods_table()


@pytest.mark.slow
def test_the_table_has_a_row_a_method_with_its_link(table):
    head, line, *rows = table.splitlines()
    assert head.count("|") == line.count("|") == 8
    assert [row.split("`")[1] for row in rows] == sorted(algorithms.methods())
    families = algorithms.families()
    for row, factory in zip(rows, sorted_factories(), strict=True):
        doc = sys.modules[factory.__module__].__doc__
        link = row[row.index("](") + 2 :].split(")")[0]
        assert link.startswith("https://")
        assert link in doc
        assert row.count("|") == 8
        _, name, family, *_ = (cell.strip() for cell in row.split("|"))
        assert family == families[name.strip("`")]


def test_help_and_the_list_name_each_kind_of_file():
    listed = listing.list_components("datasets")
    for name in FILES:
        assert name in HELP["Data"]["dataset"]
        assert f"\n{name} " in listed


def sorted_factories():
    return [factory for _, factory in sorted(algorithms.methods().items())]


@pytest.mark.slow
def test_bytes_of_the_table(table):
    cells = {row.split("`")[1]: row.split("|") for row in table.splitlines()[2:]}
    model = f"{4 * 199_210:,}"
    assert [c.strip() for c in cells["fedavg"][-3:-1]] == [model, model]
    assert [c.strip() for c in cells["local"][-3:-1]] == ["0", "0"]
    down, up = (int(c.replace(",", "")) for c in cells["fedper"][-3:-1])
    assert down == up == 4 * (199_210 - 2_010)  # the head stays


@pytest.mark.slow
def test_the_docs_have_this_table(table):
    """`make table` prints it; it belongs between the two markers."""
    text = TABLE.read_text(encoding="utf-8")
    assert text.count("<!-- methods -->") == text.count("<!-- /methods -->") == 1
    between = text.split("<!-- methods -->")[1].split("<!-- /methods -->")[0]
    assert between.strip() == table


def test_methods_stand_under_their_families():
    families = algorithms.families()
    first, *blocks = listing.list_components("algorithms").split("\n\n")
    assert _names(first) == ["fedavg", "local"]
    headings = [block.splitlines()[0] for block in blocks]
    assert "[decoupling] Clients keep a part of the network." in headings
    for heading, block in zip(headings, blocks, strict=True):
        family = heading.partition("]")[0].removeprefix("[")
        members = sorted(name for name in families if families[name] == family)
        assert _names(block) == members


def _names(block):
    """The names that lines of a listing begin with."""
    lines = [line for line in block.splitlines() if line[0] not in " ["]
    return [line.split()[0] for line in lines]


def test_options_are_listed_with_their_defaults():
    text = listing.list_components("algorithms")
    assert "lam=0.1, personal_epochs=None" in text
    partitions = listing.list_components("partitions")
    assert "per_client=2" in partitions
    assert "the clients in the data set itself" in partitions
    assert "hidden=(64,)" in listing.list_components("models")
    datasets = listing.list_components("datasets")
    assert "alpha=1.0, beta=1.0" in datasets
    assert datasets.splitlines()[-1].endswith("keeps one example in N")


def test_a_method_without_a_table_is_refused():
    with pytest.raises(ValueError, match="needs a link and the table: 'Nothing'"):
        method_table._header("Nothing")
