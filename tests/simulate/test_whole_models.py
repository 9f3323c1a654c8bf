"""Models without body and head, by methods that need neither, and by others."""

import pytest
from flax import linen as nn

import tiny
from pfljax import models
from pfljax.simulate import begin

NET = nn.Sequential([lambda x: x.reshape(len(x), -1), nn.Dense(8), nn.Dense(10)])


@pytest.mark.parametrize(
    "method",
    [
        "ditto",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("fedavg", "scaffold")),
    ],
)
def test_methods_of_whole_models_take_them(method):
    task = models.task(NET, (8, 8, 1))
    job = tiny.TINY.replace(algorithm=method, model="own")
    assert begin.check_method(job, None, task).algorithm.name == method


@pytest.mark.parametrize(
    "method",
    [
        "fedrep",
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in ("fedper", "fedproto", "lg_fedavg")
        ),
    ],
)
def test_methods_of_body_and_head_say_so(method):
    task = models.task(NET, (8, 8, 1))
    job = tiny.TINY.replace(algorithm=method, model="own")
    with pytest.raises(ValueError, match=r"a head|and `head: nn") as error:
        begin.check_method(job, None, task)
    assert "\n" not in str(error.value)
