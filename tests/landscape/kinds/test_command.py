"""`pfljax landscape` tells of a finished run what the run itself reported."""

import csv
import shutil

import jax
import numpy as np
import pytest

import tiny
from pfljax import landscape, models, run
from pfljax.conformance import toy
from pfljax.conformance.toy import assert_close
from pfljax.evaluation.metrics import METRICS
from pfljax.landscape import Line, finished
from pfljax.simulate import export


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())[0]


@pytest.fixture(scope="module")
def reported(done, tmp_path_factory):
    """(a copy of the finished run, what the command printed of it)."""
    folder = tmp_path_factory.mktemp("landscape") / "run"
    shutil.copytree(done, folder)
    code, out, errors = tiny.main("landscape", folder, "--kind", "line")
    assert (code, errors) == (0, "")
    return folder, out


def arrays(folder):
    return dict(np.load(folder / "landscape" / "line.npz"))


def test_the_line_is_the_path_that_the_run_reported(reported):
    folder, _ = reported
    found, run = arrays(folder), dict(np.load(folder / "clients.npz"))
    np.testing.assert_array_equal(found["t"], run["mixture/lambda"])
    for name in METRICS:
        expected = run[f"mixture/test/{name}"]
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)
    assert np.ptp(found["accuracy"], axis=1).max() > 0
    np.testing.assert_array_equal(found["test_size"], run["test_size"])
    assert found["cosine"].shape == found["ensemble/loss"].shape == (5,)


def test_clients_that_never_took_part_have_one_end(reported):
    found = arrays(reported[0])
    idle = np.load(reported[0] / "clients.npz")["participations"] == 0
    np.testing.assert_array_equal(found["distance"] == 0, idle)
    assert f"5 clients ({idle.sum()} with equal endpoints)" in reported[1]


def test_the_csv_has_means_over_clients(reported):
    folder, _ = reported
    found = arrays(folder)
    with open(folder / "landscape" / "line.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 11 * len(METRICS)
    for row in rows:
        values = found[row["metric"]][:, round(10 * float(row["t"]))]
        assert float(row["mean"]) == pytest.approx(values.mean(), rel=1e-5)
        assert float(row["std"]) == pytest.approx(values.std(), rel=1e-4, abs=1e-7)


def test_the_table_has_the_figures_of_the_lines(reported):
    folder, out = reported
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


def test_it_leaves_the_run_as_it_was(done, reported):
    names = {p.relative_to(reported[0]) for p in reported[0].rglob("*") if p.is_file()}
    before = {p.relative_to(done) for p in done.rglob("*") if p.is_file()}
    new = {str(name) for name in names - before}
    assert new == {
        "landscape/line.npz", "landscape/line.csv",
        "figures/landscape_line.png", "figures/landscape_line.pdf",
    }  # fmt: skip


def test_the_page_of_the_run_shows_it(done, reported):
    assert 'alt="landscape line"' not in (done / "report.html").read_text()
    assert 'alt="landscape line"' in (reported[0] / "report.html").read_text()


def refused(*args):
    """The one line that the command ends with."""
    code, out, errors = tiny.main("landscape", *args)
    assert (code, out, errors.count("\n")) == (2, "", 1), errors
    return errors


def test_what_cannot_be_evaluated_is_one_line(done, tmp_path):
    assert "kind is 'plain'; known: line, pairs" in refused(done, "--kind", "plain")
    assert "points is 4; expected an odd number" in refused(done, "--points", 4)
    assert "tolerance is -1.0; expected 0" in refused(done, "--tolerance", -1)
    assert "points is 4; expected an odd" in refused(done, "--kind=plane", "--points=4")
    assert "points is 2; expected 3 or" in refused(done, "--kind=pairs", "--points=2")
    assert "points is 0; expected" in refused(done, "--points=0")
    assert "options of the kind 'line'" in refused(done, "--kind=pairs", "--other=x")
    assert "keeps too few checkpoints (2)" in refused(done, "--kind=training")
    assert "is not a run folder" in refused(tmp_path)
    half = tiny.unfinished(done, tmp_path / "half")
    assert "is unfinished" in refused(half)
    assert not (half / "landscape").exists()
    assert not (done / "landscape").exists()


def test_a_run_tells_the_layers_of_its_model(done, monkeypatch):
    built = models.model("mlp", 10, hidden=(8,))
    assert landscape.Finished(done).network == built
    monkeypatch.setattr(finished, "load_state", lambda *_: tiny.load_state(done))
    assert landscape.Finished(done, task=toy.classifier()).network is None


def test_a_method_without_endpoints_is_one_line(done, monkeypatch):
    def without(*given):
        sim, federation, state = tiny.load_state(*given)
        algorithm = sim.setting.algorithm._replace(endpoints=None)
        setting = sim.setting._replace(algorithm=algorithm)
        alone = sim.architectures[0]._replace(setting=setting)
        return sim._replace(architectures=(alone,)), federation, state

    monkeypatch.setattr(finished, "load_state", without)
    assert "a run of 'superfed', which has no endpoints" in refused(done)
    assert not (done / "landscape").exists()


@pytest.fixture(scope="module")
def kept(done, tmp_path_factory):
    """A copy of the run, and one of FedAvg that keeps every checkpoint."""
    folder = tmp_path_factory.mktemp("kinds")
    own = shutil.copytree(done, folder / "superfed")
    job = tiny.SEEN.replace(algorithm="fedavg", eval_every=1, keep_checkpoints=4)
    run(job.replace(out=str(folder / "fedavg")), quiet=True, report=False)
    return own, folder / "fedavg"


def command(folder, kind, *more):
    """(arrays, lines of the table as dicts, what was printed) of a kind."""
    asked = "line" if kind == "other" else kind
    code, out, errors = tiny.main("landscape", folder, "--kind", asked, *more)
    assert (code, errors) == (0, "")
    with open(folder / "landscape" / f"{kind}.csv") as file:
        rows = list(csv.DictReader(file))
    for picture in (folder / "figures").glob(f"landscape_{kind}*.png"):
        assert picture.stat().st_size > 1000
    return dict(np.load(folder / "landscape" / f"{kind}.npz")), rows, out


def last(folder, model, metric):
    """The last value of a metric over clients that the run reported, f32[C]."""
    return np.load(folder / "clients.npz")[f"{model}/test/{metric}"][-1]


@pytest.mark.slow
def test_the_models_of_a_run_are_those_with_which_it_was_evaluated(kept):
    for folder in kept:
        found = landscape.Finished(folder)
        models, rows = found.models(), found.federation.test
        evaluated = landscape.line(
            found.task, models, models, rows, t=[0.0], batch_size=20
        )
        for metric in ("loss", "accuracy"):
            expected = last(folder, "personal", metric)
            got = evaluated.metrics[metric][:, 0]
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        one = export.personal_model(folder, 3)
        assert_close(jax.tree.map(lambda leaf: leaf[3], models), one)


@pytest.mark.slow
def test_endpoints_of_a_run_are_the_ends_of_its_lines(kept):
    a, b = landscape.Finished(kept[0]).endpoints()
    arrays, *_ = command(kept[0], "line", "--points", 3)
    gaps = [((x - y) ** 2).sum(tuple(range(1, x.ndim))) for x, y in zip(
        *map(jax.tree.leaves, (a, b)), strict=True)]  # fmt: skip
    expected = np.sqrt(np.sum(gaps, 0))
    np.testing.assert_allclose(arrays["distance"], expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="a run of 'fedavg', which has no endpoints"):
        landscape.Finished(kept[1]).endpoints()


@pytest.mark.slow
def test_pairs_go_from_each_client_to_each_other(kept):
    arrays, rows, out = command(kept[0], "pairs")
    assert len(rows) == 5 * 4 // 2
    found = landscape.Finished(kept[0])
    models = found.models()
    a, b = (jax.tree.map(lambda leaf, k=k: leaf[k], models) for k in (1, 3))
    between = landscape.between(found.task, a, b, toy.one(found.federation.test, 1))
    assert arrays["cosine"][1, 3] == pytest.approx(float(between.cosine), rel=1e-5)
    row = next(r for r in rows if (r["client"], r["other"]) == ("1", "3"))
    assert float(row["distance"]) == pytest.approx(float(between.distance), rel=1e-5)
    walls = arrays["barrier/loss"][np.triu_indices(5, 1)]
    assert f"loss barrier {walls.mean():.4f}" in out


@pytest.mark.slow
def test_a_plane_has_the_server_in_its_middle(kept):
    fedavg = kept[1]
    rows = np.load(fedavg / "clients.npz")["test_size"]
    middle = np.average(last(fedavg, "server", "loss"), weights=rows)
    for kind in ("plane", "hessian"):
        arrays, table, out = command(fedavg, kind, "--points", 3)
        assert arrays["loss"].shape == (3, 3)
        assert arrays["loss"][1, 1] == pytest.approx(middle, rel=1e-4)
        assert float(table[4]["loss"]) == pytest.approx(middle, rel=1e-4)
        assert f"loss {middle:.4f} in the middle" in out
        assert len(np.unique(arrays["loss"])) == 9


@pytest.mark.slow
def test_the_hessian_is_that_of_the_training_loss(kept):
    found = landscape.Finished(kept[1])
    arrays, _, out = command(kept[1], "hessian", "--points", 3)
    rows = landscape.pooled(found.federation.train)
    key = jax.random.key(5)  # of another first vector
    given = found.task, found.server(), rows
    expected = landscape.eigen(*given, key, steps=60)
    np.testing.assert_allclose(arrays["eigenvalues"], expected.values, rtol=0.02)
    rise = landscape.sharpness(*given, rho=0.05).rise
    assert arrays["rise"] == pytest.approx(float(rise), rel=1e-4)
    assert f"eigenvalues {arrays['eigenvalues'][0]:.4g}, " in out


@pytest.mark.slow
def test_the_curvature_is_each_clients_on_its_own_examples(kept):
    found = landscape.Finished(kept[1])
    arrays, rows, out = command(kept[1], "curvature")
    sizes = np.asarray(found.federation.train.size)
    assert [int(row["train_size"]) for row in rows] == sizes.tolist()
    models, k = found.models(), 2
    own = jax.tree.map(lambda leaf: leaf[k], models)
    given = found.task, own, toy.one(found.federation.train, k)
    top = landscape.eigen(*given, jax.random.key(5), steps=60).values[0]
    assert arrays["greatest eigenvalue"][k] == pytest.approx(float(top), rel=0.02)
    rise = landscape.sharpness(*given, rho=0.05).rise
    assert float(rows[k]["rise"]) == pytest.approx(float(rise), rel=1e-3)
    mean = arrays["greatest eigenvalue"].mean()
    assert f"greatest eigenvalue {mean:.4g} (" in out
    assert (kept[1] / "figures" / "landscape_curvature.png").exists()


@pytest.mark.slow
def test_training_ends_at_the_last_round(kept):
    arrays, rows, out = command(kept[1], "training", "--points", 5)
    assert arrays["round"].tolist() == [1, 2, 3, 4]
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]
    sizes = np.load(kept[1] / "clients.npz")["test_size"]
    reported = np.load(kept[1] / "clients.npz")["server/test/loss"]
    expected = np.average(reported, axis=1, weights=sizes)
    np.testing.assert_allclose([float(r["loss"]) for r in rows], expected, rtol=1e-4)
    assert arrays["loss barrier"][-1] == pytest.approx(0, abs=1e-5)
    history = landscape.Finished(kept[1]).history()
    assert history.rounds == [1, 2, 3, 4]
    assert "4 rounds to the last" in out


@pytest.mark.slow
def test_a_line_to_another_run_ends_at_its_models(kept):
    before = command(kept[0], "line", "--points", 3)[0]
    arrays, _, out = command(kept[0], "other", "--other", kept[1], "--points", 3)
    kept_apart = dict(np.load(kept[0] / "landscape" / "line.npz"))
    np.testing.assert_array_equal(kept_apart["loss"], before["loss"])
    for at, folder in (0, kept[0]), (-1, kept[1]):
        expected = last(folder, "personal", "accuracy")
        np.testing.assert_allclose(arrays["accuracy"][:, at], expected, atol=1e-6)
    assert "the personal models of this run and of fedavg, round 4, of 5" in out


@pytest.mark.slow
def test_a_run_on_other_examples_is_refused(kept, tmp_path):
    job = tiny.SEEN.replace(algorithm="fedavg", rounds=1, seed=1)
    run(job.replace(out=str(tmp_path / "other")), quiet=True, report=False)
    assert "their examples differ" in refused(kept[0], "--other", tmp_path / "other")
