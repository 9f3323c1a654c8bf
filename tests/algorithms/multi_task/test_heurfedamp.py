import numpy as np
import pytest

from attended import assert_played
from pfljax.algorithms.multi_task.heurfedamp import heurfedamp
from pfljax.conformance import Case, toy

SENT = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [
    Case("heurfedamp", bytes=SENT),
    Case("heurfedamp", {"own_weight": 0.3, "start": "own"}, bytes=SENT),
]

SIGMA, PULL = 3.0, 0.4


def cosine(a, b):
    return a @ b / np.sqrt(a @ a * (b @ b))


@pytest.mark.parametrize(
    ("start", "own_weight"),
    [("cloud", None), pytest.param("own", 0.3, marks=pytest.mark.slow)],
)
def test_heurfedamp_against_numpy(start, own_weight):
    def mixed(models, heard, k):
        share = 1 / len(heard) if own_weight is None else own_weight
        near = {
            j: np.exp(SIGMA * cosine(models[k], models[j])) for j in heard if j != k
        }
        total = sum(near.values())
        u = share * models[k]
        for j, value in near.items():
            u = u + (1 - share) * value / total * models[j]
        return u

    options = {"sigma": SIGMA, "pull": PULL, "own_weight": own_weight}
    assert_played(heurfedamp, mixed, PULL, start, **options)


@pytest.mark.slow
def test_a_client_that_alone_has_sent_gets_its_own_model():
    states, _ = toy.run_quadratic(heurfedamp, rounds=1, cohort=1)
    (known,) = np.flatnonzero(states[1].server.heard)
    method = heurfedamp(toy.quadratic(), toy.full_batch(), sigma=1e6, own_weight=0.1)
    turn = toy.turn(client_id=int(known))
    u = method.message(turn, states[1].server, ())
    np.testing.assert_allclose(
        toy.flat(u), toy.flat(states[1].clients)[known], rtol=1e-6
    )


def test_an_own_weight_above_one_is_refused():
    with pytest.raises(
        ValueError, match=r"^heurfedamp: own_weight is 1\.5; expected a"
    ):
        heurfedamp(toy.quadratic(), toy.full_batch(), own_weight=1.5)
