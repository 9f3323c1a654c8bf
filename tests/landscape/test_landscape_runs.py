"""`pfljax landscape` tells of a finished run what the run itself reported."""

import csv
import shutil

import numpy as np
import pytest

import tiny
from pfljax import landscape
from pfljax.landscape import Line, runs
from pfljax.metrics import METRICS


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())[0]


@pytest.fixture(scope="module")
def told(done, tmp_path_factory):
    """(a copy of the finished run, what the command printed of it)."""
    folder = tmp_path_factory.mktemp("landscape") / "run"
    shutil.copytree(done, folder)
    code, out, errors = tiny.main("landscape", folder, "--kind", "line")
    assert (code, errors) == (0, "")
    return folder, out


def arrays(folder):
    return dict(np.load(folder / "landscape" / "line.npz"))


def test_the_line_is_the_path_that_the_run_reported(told):
    folder, _ = told
    found, run = arrays(folder), dict(np.load(folder / "per_client.npz"))
    np.testing.assert_array_equal(found["t"], run["mixture/lambda"])
    for name in METRICS:
        expected = run[f"mixture/test/{name}"]
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)
    assert np.ptp(found["accuracy"], axis=1).max() > 0
    np.testing.assert_array_equal(found["test_size"], run["test_size"])
    assert found["cosine"].shape == found["ensemble/loss"].shape == (5,)


def test_clients_that_never_took_part_have_one_end(told):
    found = arrays(told[0])
    idle = np.load(told[0] / "per_client.npz")["participations"] == 0
    np.testing.assert_array_equal(found["distance"] == 0, idle)
    assert f"5 clients ({idle.sum()} with equal endpoints)" in told[1]


def test_the_csv_has_means_over_clients(told):
    folder, _ = told
    found = arrays(folder)
    with open(folder / "landscape" / "line.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 11 * len(METRICS)
    for row in rows:
        values = found[row["metric"]][:, round(10 * float(row["t"]))]
        assert float(row["mean"]) == pytest.approx(values.mean(), rel=1e-5)
        assert float(row["std"]) == pytest.approx(values.std(), rel=1e-4, abs=1e-7)


def test_the_table_has_the_figures_of_the_lines(told):
    folder, out = told
    found = arrays(folder)
    line = Line(found["t"], {name: found[name] for name in METRICS})
    lines = out.splitlines()
    assert lines[0].startswith("superfed, round 4: the line between the two endpoints")
    for text, name in zip(lines[2:4], ("accuracy", "loss"), strict=True):
        walls = landscape.barrier(line, name)
        numbers = (
            walls.mean(),
            walls.max(),
            landscape.flat_range(line, name, 0.01).mean(),
            landscape.midpoint(line, name).mean(),
            found[f"ensemble/{name}"].mean(),
        )
        assert text.split() == [name, *(f"{number:.4f}" for number in numbers)]
    assert f"cosine {found['cosine'].mean():.4f}, " in lines[4]
    assert lines[5].startswith(f"see {folder}/landscape/line.csv and ")
    for end in ("png", "pdf"):
        assert (folder / "figures" / f"landscape_line.{end}").stat().st_size > 1000


def test_it_leaves_the_run_as_it_was(done, told):
    names = {p.relative_to(told[0]) for p in told[0].rglob("*") if p.is_file()}
    before = {p.relative_to(done) for p in done.rglob("*") if p.is_file()}
    new = {str(name) for name in names - before}
    assert new == {
        "landscape/line.npz", "landscape/line.csv",
        "figures/landscape_line.png", "figures/landscape_line.pdf",
    }  # fmt: skip


def test_the_page_of_the_run_shows_it(done, told):
    assert 'alt="landscape line"' not in (done / "report.html").read_text()
    assert 'alt="landscape line"' in (told[0] / "report.html").read_text()


def refused(*args):
    """The one line that the command ends with."""
    code, out, errors = tiny.main("landscape", *args)
    assert (code, out, errors.count("\n")) == (2, "", 1), errors
    return errors


def test_what_cannot_be_judged_is_one_line(done, tmp_path):
    assert "kind is 'plain'; known: line" in refused(done, "--kind", "plain")
    assert "points is 4; expected an odd number" in refused(done, "--points", 4)
    assert "tolerance is -1.0; expected 0" in refused(done, "--tolerance", -1)
    assert "is not a run folder" in refused(tmp_path)
    half = tiny.unfinished(done, tmp_path / "half")
    assert "is unfinished: 4 rounds are logged" in refused(half)
    assert not (half / "landscape").exists()
    assert not (done / "landscape").exists()


def test_a_method_without_endpoints_is_one_line(done, monkeypatch):
    def without(*given):
        sim, federation, state = tiny.load_state(*given)
        algorithm = sim.setting.algorithm._replace(endpoints=None)
        setting = sim.setting._replace(algorithm=algorithm)
        return sim._replace(setting=setting), federation, state

    monkeypatch.setattr(runs, "load_state", without)
    assert "a run of 'superfed', which has no endpoints" in refused(done)
    assert not (done / "landscape").exists()
