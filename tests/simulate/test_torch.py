"""An exported model has the same logits in PyTorch, by the lines of docs/models.md."""

import numpy as np
import pytest

import pages
from checkout import ROOT
from pfljax.core.types import Batch
from pfljax.simulate.export import load_params, load_task


@pytest.mark.slow
def test_torch_computes_the_same_logits(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    several = pages.blocks(ROOT / "docs" / "models.md")
    last = [block for block in several if "import torch" in block.code]
    pages.run([block for block in several if "export runs/cnn" in block.code], {})
    names = {}
    exec(last[0].code, names)
    assert sum(bool(line) for line in last[0].code.splitlines()) <= 20
    batch = Batch.full(names["images"])
    ours = load_task("runs/cnn").predict(load_params("runs/cnn/client-3.npz"), batch)
    difference = np.abs(names["logits"].numpy() - ours).max()
    print(
        f"greatest difference of logits: {difference:.2g} of {np.abs(ours).max():.3g}"
    )
    assert difference < 1e-5
