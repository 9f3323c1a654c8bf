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
from pfljax.landscape.kinds import pairs as pairs_kind
from pfljax.simulate import export


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())[0]


@pytest.fixture(scope="module")
def reported(done, tmp_path_factory):
    """(a copy of the finished run, what the command printed of it)."""
    folder = tmp_path_factory.mktemp("landscape") / "run"
    shutil.copytree(done, folder)
    with tiny.undrawn():
        code, out, errors = tiny.main("landscape", folder, "--endpoints")
    assert (code, errors) == (0, "")
    return folder, out


def arrays(folder):
    return dict(np.load(folder / "landscape" / "line_endpoints.npz"))


@pytest.mark.slow
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


def test_a_line_goes_from_the_server_to_each_client(done, reported):
    lines = landscape.run_line(reported[0], points=3)
    assert lines.ends == ("the server's model", "the client's own")
    for at, model in (0, "server"), (-1, "personal"):
        expected = last(done, model, "loss")
        np.testing.assert_allclose(lines.line.metrics["loss"][:, at], expected, 1e-5)
    repaired = landscape.run_line(reported[0], points=3, statistics="repair")
    moved = repaired.line.metrics["loss"] != lines.line.metrics["loss"]
    assert moved.any(0).tolist() == [False, True, False]
    common = landscape.run_line(reported[0], points=3, rows="all")
    own = np.load(done / "clients.npz")["test_size"]
    middle = np.average(last(done, "server", "loss"), weights=own)
    np.testing.assert_allclose(common.line.metrics["loss"][:, 0], middle, 1e-4)


def test_clients_that_never_took_part_have_one_end(reported):
    found = arrays(reported[0])
    idle = np.load(reported[0] / "clients.npz")["participations"] == 0
    np.testing.assert_array_equal(found["distance"] == 0, idle)
    assert ("equal ends" in reported[1]) == idle.any()


def test_the_csv_has_means_over_clients(reported):
    folder, _ = reported
    found = arrays(folder)
    with open(folder / "landscape" / "line_endpoints.csv") as file:
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
    assert lines[0].startswith(
        "superfed, round 4: the lines of 5 clients from the first model of the mixture"
    )
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
    assert lines[5].startswith(f"see {folder}/landscape/line_endpoints.csv and ")
    for end in ("png", "pdf"):
        assert (
            folder / "figures" / f"landscape_line_endpoints.{end}"
        ).stat().st_size > 1000


def test_it_leaves_the_run_as_it_was(done, reported):
    names = {p.relative_to(reported[0]) for p in reported[0].rglob("*") if p.is_file()}
    before = {p.relative_to(done) for p in done.rglob("*") if p.is_file()}
    new = {str(name) for name in names - before}
    assert new == {
        "landscape/line_endpoints.npz", "landscape/line_endpoints.csv",
        "figures/landscape_line_endpoints.png", "figures/landscape_line_endpoints.pdf",
    }  # fmt: skip


def test_the_page_of_the_run_shows_it_and_says_what_it_is(done, reported):
    assert 'alt="landscape line' not in (done / "report.html").read_text()
    page = (reported[0] / "report.html").read_text()
    assert 'alt="landscape line endpoints"' in page
    assert "11 points from 0 to 1, on each client&#39;s own test examples" in page


def refused(*args):
    """The one line that the command ends with."""
    code, out, errors = tiny.main("landscape", *args)
    assert (code, out, errors.count("\n")) == (2, "", 1), errors
    return errors


def test_what_cannot_be_evaluated_is_one_line(done, tmp_path):
    assert "kind is 'plain'; known: line, curve" in refused(done, "--kind", "plain")
    assert "tolerance is -1.0; expected 0" in refused(done, "--tolerance", -1)
    assert "points is 2; expected 3 or" in refused(done, "--kind=pairs", "--points=2")
    assert "range is 1.0 to 0.0; exp" in refused(done, "--range", 1, 0)
    assert "model of" in refused(done, "--statistics", "mix")
    through = done, "--kind=plane", "--through", "server", "client:1"
    assert "leave it out" in refused(*through, "--range", 0, 1)
    assert "metric is 'los'; known" in refused(done, "--metric", "los")
    assert "other is not an option of the kind 'pairs', which takes align" in refused(
        done, "--kind=pairs", "--other=x"
    )
    through = done, "--kind=plane", "--through", "server"
    assert "through has 'client:9'; expected server" in refused(*through, "client:9")
    assert "expected two or three different models" in refused(*through)
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
    assert "'superfed', which has no endpoints" in refused(done, "--endpoints")
    assert not (done / "landscape").exists()


@pytest.fixture(scope="module")
def kept(done, tmp_path_factory):
    """A copy of the run, and one of FedAvg that keeps every checkpoint."""
    folder = tmp_path_factory.mktemp("kinds")
    own = shutil.copytree(done, folder / "superfed")
    job = tiny.SEEN.replace(algorithm="fedavg", eval_every=1, keep_checkpoints=4)
    run(job.replace(out=str(folder / "fedavg")), quiet=True, report=False)
    return own, folder / "fedavg"


def command(folder, kind, *more, name=None):
    """(arrays, lines of the table as dicts, what was printed) of a kind."""
    name = name or kind
    with tiny.undrawn():
        code, out, errors = tiny.main("landscape", folder, "--kind", kind, *more)
    assert (code, errors) == (0, "")
    with open(folder / "landscape" / f"{name}.csv") as file:
        rows = list(csv.DictReader(file))
    for picture in (folder / "figures").glob(f"landscape_{name}*.png"):
        assert picture.stat().st_size > 1000
    assert not list((folder / "landscape").glob("*.blocks.npz"))
    return dict(np.load(folder / "landscape" / f"{name}.npz")), rows, out


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
    given = "--endpoints", "--points", 3
    arrays, *_ = command(kept[0], "line", *given, name="line_endpoints")
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
    for name, compare in (("CKA", landscape.linear_cka), ("disagreement", None)):
        compare = compare or landscape.disagreement
        expected = compare(found.task, models, found.federation.test)
        np.testing.assert_allclose(arrays[name], expected, atol=1e-6)
    walls = arrays["loss barrier"][np.triu_indices(5, 1)]
    assert f"loss barrier {walls.mean():.4f}" in out
    assert "11 points from 0 to 1, on both clients' test examples" in out
    line = Line(arrays["t"], {"loss": arrays["line/loss"]})
    np.testing.assert_allclose(landscape.barrier(line), walls, rtol=1e-6)


@pytest.mark.slow
def test_a_plane_has_the_server_in_its_middle(kept):
    fedavg = kept[1]
    rows = np.load(fedavg / "clients.npz")["test_size"]
    middle = np.average(last(fedavg, "server", "loss"), weights=rows)
    for kind in ("plane", "hessian"):
        arrays, table, _ = command(fedavg, kind, "--points", 3)
        assert arrays["loss"].shape == (3, 3)
        assert arrays["loss"][1, 1] == pytest.approx(middle, rel=1e-4)
        assert float(table[4]["loss"]) == pytest.approx(middle, rel=1e-4)
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
    arrays, rows, out = command(
        kept[1], "curvature", "--layers", name="curvature_layers"
    )
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
    layers = [float(rows[k][f"trace/{name}"]) for name in ("body/layers_1", "head")]
    assert sum(layers) == pytest.approx(arrays["trace"][k], rel=1e-4)
    head = landscape.eigen(*given, jax.random.key(5), layer="head", steps=60).values[0]
    assert arrays["greatest eigenvalue/head"][k] == pytest.approx(float(head), rel=0.02)
    for end in ("", "_layers"):
        picture = f"landscape_curvature_layers{end}.png"
        assert (kept[1] / "figures" / picture).exists()


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
    assert landscape.Finished(kept[1]).history()[0] == [1, 2, 3, 4]
    assert "4 rounds to the last" in out


@pytest.mark.slow
def test_a_line_to_another_run_ends_at_its_models(kept):
    before = command(kept[0], "line", "--points", 3)[0]
    given = "--other", kept[1], "--points", 3
    arrays, _, out = command(kept[0], "line", *given, name="line_other-fedavg")
    kept_apart = dict(np.load(kept[0] / "landscape" / "line.npz"))
    np.testing.assert_array_equal(kept_apart["loss"], before["loss"])
    for at, folder in (0, kept[0]), (-1, kept[1]):
        expected = last(folder, "personal", "accuracy")
        np.testing.assert_allclose(arrays["accuracy"][:, at], expected, atol=1e-6)
    ends = "from superfed's model at round 4 to fedavg's model at round 4 in fedavg"
    assert ends in out


@pytest.mark.slow
def test_a_run_on_other_examples_is_refused(kept, tmp_path):
    job = tiny.SEEN.replace(algorithm="fedavg", rounds=1, seed=1)
    run(job.replace(out=str(tmp_path / "other")), quiet=True, report=False)
    assert "their examples differ" in refused(kept[0], "--other", tmp_path / "other")


@pytest.mark.slow
def test_over_rounds_ends_where_pairs_and_lines_are(kept):
    ditto = kept[1].parent / "ditto"
    job = tiny.SEEN.replace(algorithm="ditto", eval_every=1, keep_checkpoints=4)
    run(job.replace(out=str(ditto)), quiet=True, report=False)
    given = "--through", "client:0", "client:3"
    name = "over-rounds_through-client0-client3"
    arrays, rows, out = command(ditto, "over-rounds", *given, name=name)
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]
    assert "clients 0, 3 at 4 rounds, 11 points from 0 to 1" in out
    pairs, *_ = command(ditto, "pairs")
    assert arrays["accuracy barrier between clients"][-1, 0] == pytest.approx(
        pairs["accuracy barrier"][0, 3], abs=1e-6
    )
    lines = landscape.run_line(ditto).line
    walls = landscape.barrier(lines, "loss")[[0, 3]]
    np.testing.assert_allclose(arrays["loss barrier to the server"][-1], walls, 1e-4)


@pytest.mark.slow
def test_a_curve_lies_on_its_plane_and_is_no_higher_than_the_line(kept):
    given = "--through", "client:1", "client:3", "--points", 3
    name = "curve_through-client1-client3"
    arrays, rows, out = command(kept[0], "curve", *given, name=name)
    assert (len(rows), arrays["loss"].shape) == (9, (3, 3))
    np.testing.assert_allclose(arrays["way"][0], 0, atol=1e-6)
    assert arrays["curve/loss"].mean() < arrays["straight line/loss"].mean()
    assert "through names 0 models, and a curve has two" in refused(
        kept[0], "--kind=curve"
    )
    assert "of the curve client:1 to client:3, 3 x 3 points, on" in out


@pytest.mark.slow
def test_a_large_federation_has_a_sample_of_pairs(kept, monkeypatch):
    whole, *_ = command(kept[0], "pairs")
    monkeypatch.setattr(pairs_kind, "MOST", 4)
    monkeypatch.setattr(pairs_kind, "SAMPLE", 3)
    arrays, rows, out = command(kept[0], "pairs")
    ids = arrays["ids"].tolist()
    assert len(rows) == 3
    assert f"3 of 5 clients' (a sample: {ids})" in out
    part = whole["distance"][np.ix_(ids, ids)]
    np.testing.assert_allclose(arrays["distance"], part, rtol=1e-5)


@pytest.mark.slow
def test_a_run_with_clients_of_ones_own_has_landscapes_in_python(kept, tmp_path):
    federation = landscape.Finished(kept[1]).federation
    job = tiny.SEEN.replace(algorithm="ditto", rounds=1, unseen=0.0, seed=1)
    job = job.replace(partition="given", out=str(tmp_path / "own"))
    run(job, federation, quiet=True, report=False)
    errors = refused(tmp_path / "own")
    assert "pfljax.landscape.write_landscape(folder, federation=...)" in errors
    text = landscape.write_landscape(tmp_path / "own", "pairs", federation=federation)
    assert "10 pairs of 5 clients'" in text
    # Another seed on the same clients, which the other run made from its settings.
    text = landscape.write_landscape(kept[1], other=str(tmp_path / "own"))
    assert "to ditto's model at round 1 in own, 11" in text
