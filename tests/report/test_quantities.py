"""Quantities of clients in the report of a run."""

import numpy as np
import pytest

from pfljax.report import quantities
from pfljax.report.page_run import _client_columns
from pfljax.report.runs import read_run


@pytest.fixture(scope="module")
def run(make_run, tmp_path_factory):
    """A run that told of each client twice, the second time in the order of rows."""
    folder = make_run(tmp_path_factory.mktemp("told") / "run", "ditto")
    whole = read_run(folder)
    size = whole.per_client["train_size"].astype(np.float32)
    tau = np.stack([np.zeros_like(size), size**2 / 1000])
    return whole._replace(per_client=whole.per_client | {"client/tau": tau})


def test_each_client_has_a_cell_of_the_last_evaluation(run):
    size = run.per_client["train_size"]
    cells = _client_columns(run)["tau"]
    assert [float(cell) for cell in cells] == pytest.approx(size**2 / 1000, rel=1e-3)
    nothing = {"client/tau": np.full((1, 20), np.nan)}
    cells = _client_columns(run._replace(per_client=run.per_client | nothing))["tau"]
    assert set(cells) == {"–"}


def test_a_dot_a_client_and_the_rank_correlation(run):
    figure = quantities.quantities_by_size(run)
    [axes] = figure.axes
    [dots] = axes.get_lines()
    size = run.per_client["train_size"]
    np.testing.assert_array_equal(dots.get_xdata(), size)
    np.testing.assert_allclose(dots.get_ydata(), size**2 / 1000, rtol=1e-5)
    assert axes.get_title() == "tau\nrank correlation 1.00"
    assert axes.get_xlabel() == "training rows"


def test_numbers_of_one_size_are_not_correlated(run):
    same = np.ones(20)
    assert quantities.correlated(same, np.arange(20)) == ""
    figure = quantities.quantities_by_size(
        run._replace(per_client=run.per_client | {"train_size": same})
    )
    assert figure.axes[0].get_title() == "tau"


def test_a_run_that_told_nothing_has_no_figure(make_run, tmp_path):
    plain = read_run(make_run(tmp_path / "run", "ditto"))
    assert quantities.quantities_by_size(plain) is None
    assert quantities.quantities_of(plain) == {}
