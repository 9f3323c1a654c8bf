"""The options and messages of `pfljax landscape`, without the numbers of a run."""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import tiny
from pfljax import landscape, models
from pfljax.conformance import toy
from pfljax.evaluation.metrics import METRICS
from pfljax.landscape import curvature
from pfljax.landscape.kinds import (
    blocks,
    command,
    curvatures,
    lines,
    pairs,
    record,
    surfaces,
)
from pfljax.report.frames import make_frame
from pfljax.runs.landscape_options import LandscapeOptions

CLIENTS = 6
NAN = np.where(np.arange(CLIENTS) == 1, np.arange(CLIENTS) + 0.5, np.nan)
ANY = Path("any")
STORE = blocks.Store()
TASK = toy.classifier()


def test_the_command_names_the_kinds_that_there_are():
    code, out, _ = tiny.main("landscape", "--help")
    assert code == 0
    *kinds, last = command.KINDS
    words = "".join(c for c in out if c.isalpha() or c in ",-")  # no frame, no breaks
    assert f"{','.join(kinds)}or{last}" in words


@pytest.mark.parametrize("kind", sorted(command.KINDS))
def test_a_kind_refuses_the_options_that_it_lacks(kind):
    lacking = vars(LandscapeOptions()).keys() - command.KINDS[kind].defaults - {"kind"}
    values = {"through": ("server",), "other": Path("x"), "metric": "loss"}
    for name in lacking:
        options = LandscapeOptions(kind, **{name: values.get(name, 5)})
        with pytest.raises(ValueError, match=f"{name} is not an option of the kind"):
            command.check_options(ANY, options)


def test_a_run_is_no_other_run(tmp_path):
    options = LandscapeOptions(other=tmp_path / "x" / "..")
    with pytest.raises(ValueError, match="itself; choose another run"):
        command.check_options(tmp_path, options)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"points": 5}, "line"),
        ({"other": Path("runs/b/s0"), "rows": "all"}, "line_rows-all_other-b-s0"),
        ({"kind": "plane", "range": (-2, 0.5)}, "plane_range--2...0.5"),
        ({"kind": "curve", "through": ("client:3",)}, "curve_through-client3"),
        ({"kind": "hessian", "seed": 3}, "hessian_seed-3"),
        ({"kind": "pairs", "align": True}, "pairs_align"),
    ],
)  # fmt: skip
def test_files_are_named_by_what_they_show(options, name):
    assert command.name_files(Path("runs/a/s0"), LandscapeOptions(**options)) == name


def test_what_a_killed_process_computed_is_not_computed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "SECONDS", -1.0)
    file = tmp_path / "landscape" / "plane.blocks.npz"
    asked = []

    def evaluate(number):
        asked.append(number)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"loss": np.full(2, number)}

    store = blocks.Store(file, "this")
    with pytest.raises(KeyboardInterrupt):
        blocks.compute(store, "plane", range(4), evaluate)
    found = blocks.compute(store, "plane", range(4), evaluate)
    assert found["loss"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert asked == [0, 1, 2, 2, 3]
    blocks.compute(store._replace(asked="other points"), "plane", range(4), evaluate)
    assert asked[5:] == [0, 1, 2, 3]


@pytest.fixture
def run():
    """A run of 6 clients, all but one of which have diverged."""
    examples = SimpleNamespace(size=np.full(CLIENTS, 3))
    federation = SimpleNamespace(num_clients=CLIENTS, train=examples, test=examples)
    finished = SimpleNamespace(
        federation=federation, about="fedavg, round 4", label="FedAvg", task=TASK,
        batch_size=10, network="its layers", ids=np.arange(CLIENTS),
        models=lambda: np.zeros((CLIENTS, 1)), server=lambda: None,
        architectures=lambda: [finished], blocks=lambda size: [finished],
        take=lambda ids: finished,
    )  # fmt: skip
    return finished


def test_clients_that_diverged_are_counted_by_the_curvature(run, monkeypatch):
    values = np.stack([NAN, NAN], 1)
    for name, result in (
        ("eigen", landscape.Eigen(values, None, values)),
        ("trace", landscape.Trace(NAN, NAN)),
        ("sharpness", landscape.Sharpness(NAN, NAN)),
    ):
        monkeypatch.setattr(curvatures, name, lambda *_, result=result, **__: result)
    options = LandscapeOptions("curvature", rows="train")
    text = curvatures.compute_curvature(run, options, STORE).text
    assert "1 of 6 finite: greatest eigenvalue 1.5 (1.5 to 1.5), trace 1.5" in text
    none = landscape.Sharpness(np.nan * NAN, NAN)
    monkeypatch.setattr(curvatures, "sharpness", lambda *_, **__: none)
    text = curvatures.compute_curvature(run, options, STORE).text
    assert "0 of 6 finite: none; the rise" in text


def test_of_a_record_of_several_things_the_model_is_evaluated(monkeypatch):
    """A client's state may be a tuple, as in FedProto."""
    task = toy.classifier()
    model = task.init(jax.random.key(0))
    run = object.__new__(landscape.Finished)
    run.path = ANY
    run.architecture = SimpleNamespace(task=task)
    prototypes = {"mean": np.zeros(3)}
    toy.assert_same(run._find_model((prototypes, (model, 0.5))), model)
    monkeypatch.setattr(landscape.Finished, "method", "fedem")
    with pytest.raises(ValueError, match="'fedem', whose clients use another model"):
        run._find_model((prototypes, 0.5))


def test_pairs_that_diverged_are_counted_and_in_no_mean(run, monkeypatch):
    i, j = np.triu_indices(CLIENTS, 1)
    loss = np.ones((len(i), 3))
    loss[(i == 0) & (j == 1)] = 1, 3, 1
    loss[(i == 3) | (j == 3)] = np.nan
    metrics = {"loss": loss, "accuracy": np.full(loss.shape, 0.1)}
    beside = np.zeros(len(i))
    found = landscape.Pairs(landscape.Line(None, metrics), beside, beside)
    monkeypatch.setattr(pairs, "pair_lines", lambda *_, **__: found)
    same = dict.fromkeys(pairs.SIMILARITY, lambda *_: np.zeros((CLIENTS, CLIENTS)))
    monkeypatch.setattr(pairs, "SIMILARITY", same)
    options = LandscapeOptions("pairs", points=3, rows="own")
    result = pairs.compute_pairs(run, options, STORE)
    assert "means over pairs, 10 of 15 finite: loss barrier 0.2000, acc" in result.text
    assert np.isnan(result.arrays["loss barrier"][3, [0, 1, 2, 4, 5]]).all()
    loss[:] = np.nan
    text = pairs.compute_pairs(run, options, STORE).text
    assert text.endswith("0 of 15 finite: none")


def test_the_plane_is_normalised_by_the_layers_of_the_run(run, monkeypatch):
    given = []

    def direction(key, params, network):
        given.append(network)

    monkeypatch.setattr(surfaces.frames, "random_direction", direction)
    for name in ("evaluate_plane", "describe_plane"):
        monkeypatch.setattr(surfaces, name, lambda *_: None)
    monkeypatch.setattr(record, "pool_rows", lambda *_: None)
    surfaces.compute_plane(run, LandscapeOptions("plane", points=3), STORE)
    assert given == ["its layers"] * 2


def line_of(loss):
    """Lines of 6 clients with these losses f32[6, 3]."""
    t = np.linspace(0, 1, 3, dtype=np.float32)
    found = dict.fromkeys(METRICS, np.full((CLIENTS, 3), 0.5))
    ensemble = dict.fromkeys(METRICS, NAN)
    beside = landscape.Between(ensemble, NAN, NAN, NAN)
    line = landscape.Line(t, found | {"loss": loss})
    return lines.RunLine(line, beside, np.ones(CLIENTS), "superfed", ("w", "v"))


def test_a_line_says_which_ends_it_has_and_how_many_clients_diverged(monkeypatch):
    found = line_of(np.tile(NAN[:, None], 3))
    between = found.between._replace(distance=np.arange(CLIENTS))
    found = found._replace(between=between)
    monkeypatch.setattr(lines, "measure", lambda *_: found)
    options = LandscapeOptions(points=3, tolerance=0.01)
    made = lines.compute_lines(SimpleNamespace(task=TASK), options, STORE)
    ends = "of 6 clients from w to v, of which 1 have two equal ends, 3 points from 0"
    assert ends in made.text
    assert "of which 1 of 6 have a finite loss" in made.text
    assert made.figures[""].axes[1].get_xlabel() == "t, from w (0) to v (1)"


def test_a_range_changes_no_barrier():
    plain = record.place_on_line(LandscapeOptions(points=11))
    wide = record.place_on_line(LandscapeOptions(points=11, range=(-0.5, 1.5)))
    within = (wide >= 0) & (wide <= 1)
    np.testing.assert_array_equal(wide[within], plain)
    np.testing.assert_allclose(wide[~within], [-0.5, -0.3, -0.1, 1.1, 1.3, 1.5])
    words = "11 points from 0 to 1 and 6 beyond, from -0.5 to 1.5"
    assert record.describe_line(wide) == words
    with pytest.raises(ValueError, match=r"range is 0\.2 to 1; expected one with both"):
        record.place_on_line(LandscapeOptions(points=11, range=(0.2, 1)))


def test_captions_tell_what_is_shown(tmp_path, monkeypatch):
    captions, beside = [], tmp_path.parent / "b" / "s0"
    monkeypatch.setattr(
        command, "save_figure", lambda *_, caption: captions.append(caption)
    )
    monkeypatch.setattr(command, "write_run_report", lambda _: None)
    drawn = {"": None}
    made = record.Landscape({}, make_frame({"t": [0.0]}), drawn, "text", "The loss.")
    for more in {}, {"range": (-0.5, 1.5)}, {"align": True}, {"other": beside}:
        command._write(tmp_path, "line", LandscapeOptions(**more), made)
    assert captions[0].endswith(" The loss.")
    ends = "--range -0.5 1.5", "--align", "--other b s0"
    for caption, end in zip(captions[1:], ends, strict=True):
        assert caption.endswith(f" Options: {end}.")


class EnoughError(Exception):
    """The program would begin here."""


@pytest.mark.parametrize(("name", "most"), [("eigen", 20), ("density", 31)])
def test_a_model_of_few_parameters_has_fewer_steps(name, most, monkeypatch):
    options = []

    def measure(function, task, params, data, given, numbers, *_, **__):
        options.append(numbers)
        raise EnoughError

    monkeypatch.setattr(curvature, "measure", measure)
    small = models.task(models.model("logistic", 3), (3,))  # 12 numbers
    for task, steps in ((small, 12), (toy.classifier(), most)):
        with pytest.raises(EnoughError):
            getattr(curvature, name)(task, None, None, None)
        assert options[-1][-1] == steps
