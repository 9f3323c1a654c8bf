import jax
import pytest

from pfljax.algorithms.global_model.fedprox_heuristic import fedprox_heuristic
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedprox_heuristic", bytes=(toy.WHOLE + 4, toy.WHOLE + 4)),
    Case(
        "fedprox_heuristic",
        {"iid": True, "finetune": 2, "inexactness": True},
        bytes=(toy.WHOLE + 4, toy.WHOLE + 4),
    ),
]


@pytest.mark.parametrize(("iid", "mu"), [(True, 0), (False, 1)])
def test_the_heuristic_begins_where_clients_say(iid, mu):
    method = fedprox_heuristic(toy.quadratic(), toy.full_batch(), iid=iid)
    server = method.init(toy.unflat([1.0, 2, 3]), 4, jax.random.key(0))
    assert server.mu == mu
