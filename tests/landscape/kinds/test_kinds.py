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
from pfljax.landscape.kinds import clients, command, lines, surfaces

CLIENTS = 6
NAN = np.where(np.arange(CLIENTS) == 1, np.arange(CLIENTS) + 0.5, np.nan)
ANY = Path("any")


def test_the_command_names_the_kinds_that_there_are():
    code, out, _ = tiny.main("landscape", "--help")
    assert code == 0
    *kinds, last = command.KINDS
    words = "".join(c for c in out if c.isalpha() or c == ",")  # no frame, no breaks
    assert f"{','.join(kinds)}or{last}" in words


@pytest.mark.parametrize("kind", sorted(command.KINDS.keys() - {"line"}))
@pytest.mark.parametrize("options", [{"tolerance": 0.1}, {"other": ANY}])
def test_options_of_lines_are_refused_for_other_kinds(kind, options):
    with pytest.raises(ValueError, match=f"options of the kind 'line', not of '{kind}"):
        command.landscape(ANY, kind, **options)


def test_the_curvature_has_no_points():
    with pytest.raises(ValueError, match="points is not an option of the kind"):
        command.landscape(ANY, "curvature", points=3)


def test_a_run_is_no_other_run(tmp_path):
    with pytest.raises(ValueError, match="itself; choose another run"):
        command.landscape(tmp_path, "line", other=tmp_path / "x" / "..")


@pytest.fixture
def run(monkeypatch):
    """A run of 6 clients, all but one of which have diverged."""
    examples = SimpleNamespace(size=np.full(CLIENTS, 3))
    federation = SimpleNamespace(num_clients=CLIENTS, train=examples, test=examples)
    finished = SimpleNamespace(
        federation=federation, about="fedavg, round 4", label="FedAvg", task=None,
        batch_size=10, network="its layers", ids=np.arange(CLIENTS),
        models=lambda: None, server=lambda: None, architectures=lambda: [finished],
    )  # fmt: skip
    for module in (clients, surfaces):
        monkeypatch.setattr(module, "Finished", lambda path: finished)
    return finished


def test_clients_that_diverged_are_counted_by_the_curvature(run, monkeypatch):
    values = NAN[:, None]
    for name, result in (
        ("eigen", landscape.Eigen(values, None, values)),
        ("trace", landscape.Trace(NAN, NAN)),
        ("sharpness", landscape.Sharpness(NAN, NAN)),
    ):
        monkeypatch.setattr(clients, name, lambda *_, result=result, **__: result)
    text = clients.compute_curvature(ANY).text
    assert "1 of 6 finite: greatest eigenvalue 1.5 (1.5 to 1.5), trace 1.5" in text
    none = landscape.Sharpness(np.nan * NAN, NAN)
    monkeypatch.setattr(clients, "sharpness", lambda *_, **__: none)
    assert "0 of 6 finite: none; the rise" in clients.compute_curvature(ANY).text


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
    t = np.linspace(0, 1, 3, dtype=np.float32)
    loss = np.ones((CLIENTS, CLIENTS, 3))
    loss[0, 1] = loss[1, 0] = 1, 3, 1
    loss[3], loss[:, 3] = np.nan, np.nan
    accuracy = np.full(loss.shape, 0.1)
    beside = np.zeros((CLIENTS, CLIENTS))
    line = landscape.Line(t, {"loss": loss, "accuracy": accuracy})
    pairs = landscape.Pairs(line, beside, beside)
    monkeypatch.setattr(clients, "pairs", lambda *_, **__: pairs)
    text = clients.compute_pairs(ANY, 3).text
    assert "means over pairs, 10 of 15 finite: loss barrier 0.2000, acc" in text
    loss[:] = np.nan
    assert text.endswith("cosine 0.0000, distance 0.0000")
    assert clients.compute_pairs(ANY, 3).text.endswith("0 of 15 finite: none")


def test_the_plane_is_normalised_by_the_layers_of_the_run(run, monkeypatch):
    given = []

    def direction(key, params, network):
        given.append(network)

    monkeypatch.setattr(surfaces, "random_direction", direction)
    monkeypatch.setattr(surfaces, "_evaluate", lambda *_: None)
    monkeypatch.setattr(surfaces, "_describe", lambda *_: None)
    surfaces.compute_plane(ANY, 3)
    assert given == ["its layers"] * 2


def line_of(loss):
    """Lines of 6 clients with these losses f32[6, 3]."""
    t = np.linspace(0, 1, 3, dtype=np.float32)
    found = dict.fromkeys(METRICS, np.full((CLIENTS, 3), 0.5))
    ensemble = dict.fromkeys(METRICS, NAN)
    beside = landscape.Between(ensemble, NAN, NAN, NAN)
    line = landscape.Line(t, found | {"loss": loss})
    return lines.RunLine(line, beside, np.ones(CLIENTS), "superfed", "the ends")


def test_a_line_says_which_ends_it_has_and_how_many_clients_diverged(monkeypatch):
    found = line_of(np.tile(NAN[:, None], 3))
    monkeypatch.setattr(lines, "run_line", lambda *_, **__: found)
    own = lines.compute_lines(ANY, 3, 0.01, None)
    assert "6 clients (0 with equal endpoints)" in own.text
    assert "of which 1 of 6 have a finite loss" in own.text
    for made, xlabel in (
        (own, "t, from the server's model (0) to the client's own (1)"),
        (
            lines.compute_lines(ANY, 3, 0.01, Path("x")),
            "t, from models of any (0) to of x (1)",
        ),
    ):
        assert made.figures[""].axes[0].get_xlabel() == xlabel


class EnoughError(Exception):
    """The program would begin here."""


@pytest.mark.parametrize(("name", "most"), [("eigen", 20), ("density", 31)])
def test_a_model_of_few_parameters_has_fewer_steps(name, most, monkeypatch):
    options = []

    def measure(function, task, params, data, given, numbers, batch_size):
        options.append(numbers)
        raise EnoughError

    monkeypatch.setattr(curvature, "measure", measure)
    small = models.task(models.model("logistic", 3), (3,))  # 12 numbers
    for task, steps in ((small, 12), (toy.classifier(), most)):
        with pytest.raises(EnoughError):
            getattr(curvature, name)(task, None, None, None)
        assert options[-1][-1] == steps
