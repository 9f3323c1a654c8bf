"""Landscapes of a run whose clients have several architectures."""

import numpy as np
import pytest

import tiny
from pfljax import landscape, models, run
from pfljax.conformance.toy import assert_close
from pfljax.core.tree import paths
from pfljax.simulate import export

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]

# Clients 0, 2, 3 and 5 have the first model, 1 and 4 the second.
MODELS = "mlp:hidden=(8,4),mlp:hidden=(5,4),mlp:hidden=(8,4)"
JOB = tiny.TINY.replace(algorithm="lg_fedavg", model="auto", models=MODELS)
FIRST, SECOND = [0, 2, 3, 5], [1, 4]


def finished(folder, **changes):
    run(JOB.replace(out=str(folder), **changes), quiet=True, report=False)
    return folder


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("several") / "run")


def refused(*args):
    """The one line that the command ends with."""
    code, out, errors = tiny.main("landscape", *args)
    assert (code, out, errors.count("\n")) == (2, "", 1), errors
    return errors


def arrays(folder, kind):
    return dict(np.load(folder / "landscape" / f"{kind}.npz"))


def test_the_models_of_each_architecture_are_those_exported(done):
    every = landscape.Finished(done)
    parts = every.architectures()
    assert [part.ids.tolist() for part in parts] == [FIRST, SECOND]
    for part in parts:
        stacked = part.models()
        for row, client in enumerate(part.ids.tolist()):
            model = {name: leaf[row] for name, leaf in flat(stacked).items()}
            assert_close(model, flat(export.personal_model(done, client)))
    for part, width in zip(parts, (8, 5), strict=True):
        assert part.network == models.model("mlp", 10, hidden=(width, 4))
    with pytest.raises(ValueError, match="has clients of several architectures, whose"):
        every.models()


def flat(tree):
    return {name: np.asarray(leaf) for name, leaf in paths(tree).items()}


def test_pairs_are_of_clients_of_one_architecture(done):
    code, out, errors = tiny.main("landscape", done, "--kind", "pairs")
    assert code == 0, errors
    assert "7 pairs of 6 clients' personal models, within 2 architectures" in out
    found = arrays(done, "pairs")
    is_pair = np.zeros((6, 6), bool)
    for members in (FIRST, SECOND):
        is_pair[np.ix_(members, members)] = True
    for name in ("cosine", "distance", "loss barrier"):
        np.testing.assert_array_equal(np.isfinite(found[name]), is_pair)
    a, b = (flat(export.personal_model(done, client)) for client in SECOND)
    square = sum(np.sum((a[name] - b[name]) ** 2) for name in a)
    assert found["distance"][1, 4] == pytest.approx(square**0.5, rel=1e-4)


def test_clients_without_an_equal_have_no_pairs(tmp_path):
    three = ",".join(f"mlp:hidden=({width},4)" for width in (8, 7, 6))
    folder = finished(tmp_path / "run", clients=3, models=three, rounds=1)
    assert "has no two clients of one architecture" in refused(folder, "--kind=pairs")


def test_each_client_has_a_curvature(done):
    code, out, errors = tiny.main("landscape", done, "--kind", "curvature")
    assert code == 0, errors
    assert "the personal models of 6 clients" in out
    found = arrays(done, "curvature")
    np.testing.assert_array_equal(
        found["train_size"], np.load(done / "clients.npz")["train_size"]
    )
    (_, second) = landscape.Finished(done).architectures()
    own = landscape.sharpness(
        second.task, second.models(), second.federation.train, rho=0.05
    )
    np.testing.assert_allclose(found["rise"][SECOND], own.rise, rtol=1e-4)


def test_lines_go_to_clients_of_equal_models(done, tmp_path):
    other = finished(tmp_path / "other", lr=0.1)
    code, out, errors = tiny.main("landscape", done, "--other", other)
    assert code == 0, errors
    assert "the lines of 6 clients from" in out
    (file,) = (done / "landscape").glob("line_other-*-other.npz")
    found = dict(np.load(file))
    for folder, point in ((done, 0), (other, -1)):
        own = np.load(folder / "clients.npz")["personal/test/loss"][-1]
        np.testing.assert_allclose(found["loss"][:, point], own, rtol=1e-4)
    others = "mlp:hidden=(8,4),mlp:hidden=(6,4),mlp:hidden=(8,4)"
    stranger = finished(tmp_path / "stranger", models=others, rounds=1)
    errors = refused(done, "--other", stranger)
    assert "clients have other models in " in errors


@pytest.mark.parametrize("kind", ["plane", "hessian", "training"])
def test_a_server_without_a_model_is_refused(done, kind):
    assert "whose server has no model; choose a run" in refused(done, f"--kind={kind}")
