"""Which parameters have their outputs first."""

import jax
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.core import tree
from pfljax.models.blocks import Residual
from pfljax.models.kernel_layout import outputs_first


def test_layers_are_found_by_the_paths_of_their_parameters():
    assert outputs_first(models.model("logistic", 3)) == {"head/kernel"}
    assert outputs_first(models.model("twocnn", 3)) == {"body/layers_8/kernel"}
    for name in ("gn_cnn", "mobilenet"):
        assert outputs_first(models.model(name, 3)) == set()
    found = outputs_first(models.model("char_lstm", 3))
    assert found == {f"body/layers_{i}/kernel_{k}" for i in (1, 2) for k in "ih"}
    found = outputs_first(models.LSTM(3, layers=2))
    assert found == {f"kernel_{end}" for end in ("i", "h", "i_1", "h_1")}
    block = Residual(nn.Sequential([nn.relu, models.Linear(2)]), models.Linear(2))
    assert outputs_first(block) == {"branch/layers_1/kernel", "skip/kernel"}


def test_what_is_no_network_is_refused():
    with pytest.raises(ValueError, match="of type dict; expected an instance"):
        outputs_first({})


def test_they_have_as_many_outputs_as_the_layer():
    for name, width in (("twocnn", 512), ("char_lstm", 1024)):
        network, shape = (
            models.model(name, 3),
            (8, 8, 1)[: 3 if name == "twocnn" else 1],
        )
        row = np.zeros((1, *shape), np.float32)
        made = jax.eval_shape(network.init, jax.random.key(0), row)
        leaves = tree.paths(made["params"])
        assert {leaves[path].shape[0] for path in outputs_first(network)} == {width}
