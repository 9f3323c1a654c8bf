"""The predictions of an exported model are those of the evaluated one."""

import numpy as np
import pytest

import tiny
from pfljax import landscape, run
from pfljax.conformance.toy import assert_close
from pfljax.core import tree
from pfljax.core.types import Batch
from pfljax.simulate import export

TWO = "mlp:hidden=(8,4),mlp:hidden=(5,4)"
SLICES = "mlp:hidden=(8,),mlp:hidden=(4,)"
JOB = tiny.TINY.replace(model="auto", models=TWO)


def finished(folder, method, **changes):
    run(
        JOB.replace(algorithm=method, out=str(folder), **changes),
        quiet=True,
        report=False,
    )
    return folder


def accuracies(folder, file, federation):
    """The accuracy of each client's file, `file`(client), on its test examples."""
    test = federation.test
    found = []
    for client in range(federation.num_clients):
        first = test.offset[client]
        span = slice(first, first + test.size[client])
        predict = export.load_task(folder, client).predict
        logits = predict(
            export.load_params(file(client)), Batch.full(test.examples.x[span])
        )
        found.append(np.mean(np.argmax(logits, 1) == test.examples.y[span]))
    return found


def assert_scores_as_reported(folder, tmp_path, view="personal"):
    _, federation, _ = export.load_state(folder)

    def file(client):
        of = None if view == "server" else client
        path = tmp_path / f"{of}.npz"
        export.export(folder, of, path)
        return path

    reported = np.load(folder / "clients.npz")[f"{view}/test/accuracy"][-1]
    np.testing.assert_allclose(
        accuracies(folder, file, federation), reported, rtol=1e-6
    )


@pytest.mark.slow
def test_a_model_and_prototypes_predict_and_the_model_has_a_landscape(tmp_path):
    folder = finished(tmp_path / "run", "fedproto")
    assert_scores_as_reported(folder, tmp_path)
    task = export.load_task(folder, 1)
    other = export.load_params(tmp_path / "0.npz")
    row = Batch.full(np.zeros((1, 8, 8, 1)))
    with pytest.raises(
        ValueError, match=r"w/body/.* float32\[8\], expected float32\[5\]"
    ):
        task.predict(other, row)
    for client in (-1, 6):
        with pytest.raises(ValueError, match=f"client is {client}; expected 0 to"):
            export.load_task(folder, client)
    part = landscape.Finished(folder).architectures()[1]
    for place, client in enumerate(part.ids):
        own = export.personal_model(folder, int(client)).w
        assert_close(tree.take(part.models(), place), own)


@pytest.mark.slow
def test_other_records_predict_as_well(tmp_path):
    assert_scores_as_reported(finished(tmp_path / "run", "fedgkt"), tmp_path)


@pytest.mark.slow
def test_slices_and_a_server_with_the_largest_model_predict(tmp_path):
    folder = finished(tmp_path / "run", "heterofl", models=SLICES)
    assert_scores_as_reported(folder, tmp_path)
    assert_scores_as_reported(folder, tmp_path, "server")


@pytest.mark.slow
def test_a_model_of_another_form_predicts_and_has_no_landscape(tmp_path):
    changes = {"models": [], "model": "mlp:hidden=(4,)"}
    folder = finished(tmp_path / "run", "fedma:growth=2", **changes)
    assert_scores_as_reported(folder, tmp_path)
    with pytest.raises(ValueError, match="'fedma', whose clients use another"):
        landscape.Finished(folder).models()
