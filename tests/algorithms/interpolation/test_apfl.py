import jax
import numpy as np
import pytest

from pfljax.algorithms.interpolation.apfl import apfl
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("apfl", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("apfl", {"as_in": "fedjax"}, bytes=(toy.WHOLE, toy.WHOLE)),
    Case(
        "apfl",
        {"as_in": "superfed-code", "judge_untrained": True},
        bytes=(toy.WHOLE, toy.WHOLE),
    ),
]

FORMS = [
    {"adaptive": True},
    {"adaptive": False},
    {"as_in": "fedjax"},
    {"as_in": "superfed-code", "adaptive": False},
]


def what_is_mixed(state, form):
    """What the clients mix; fedjax's also know whether they have begun."""
    return state.clients[0] if form == "fedjax" else state.clients


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_apfl_against_numpy(options):
    """Parameters: body, the first two coordinates, and head, the third."""
    states, drawn = toy.quadratic_game(apfl, alpha=0.3, **options)
    form, adaptive = options.get("as_in", "paper"), options.get("adaptive", True)
    groups = [[0, 1], [2]] if form == "fedjax" else [[0, 1, 2]]
    w, v = toy.flat(states[0].server), toy.flat(what_is_mixed(states[0], form).v)
    alpha = np.full((4, 3), 0.3)  # one a coordinate
    met = set()
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            if form == "fedjax" and k not in met:
                v[k] = w
            met.add(k)
            own = w
            for _ in range(3):
                base = w if form == "superfed-code" else own
                mixed = toy.gradient(k, alpha[k] * v[k] + (1 - alpha[k]) * base)
                along = mixed * (v[k] - base)
                factor = 1 if form == "fedjax" else alpha[k]
                own = own - toy.RATE * toy.gradient(k, own)
                v[k] = v[k] - toy.RATE * factor * mixed
                for group in groups if adaptive else []:
                    moved = alpha[k, group] - toy.RATE * along[group].sum()
                    alpha[k, group] = np.clip(moved, 0, 1)
            uploads.append(own)
        w = np.mean(uploads, axis=0)
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        kept = what_is_mixed(state, form)
        np.testing.assert_allclose(toy.flat(kept.v), v, rtol=1e-5, atol=1e-5)
        if form != "fedjax":
            np.testing.assert_allclose(kept.alpha, alpha[:, 0], rtol=1e-5)
        else:
            np.testing.assert_allclose(kept.alpha["body"], alpha[:, 0], rtol=1e-5)
            np.testing.assert_allclose(kept.alpha["head"], alpha[:, 2], rtol=1e-5)


def test_alpha_ends_at_the_border():
    """Where v is far worse than w, alpha falls to 0 and stays there."""
    task, local = toy.quadratic(), toy.full_batch()
    method = apfl(task, local, alpha=0.9)
    kept = method.init_client(toy.unflat(np.full(3, 50.0)), 0, None)
    w, data = toy.unflat(toy.B[2]), toy.one(toy.quadratic_clients(), 2)
    turn = toy.turn(jax.random.key(0), 0, 3)
    kept, _, _ = method.train(turn, w, kept, data)
    assert kept.alpha == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"as_in": "code"}, "known: paper, fedjax"),
        ({"alpha": 1.5}, "0 <= alpha <= 1"),
        ({"as_in": "fedjax", "judge_untrained": True}, "v is w until it is trained"),
    ],
)
def test_wrong_options(options, told):
    with pytest.raises(ValueError, match=told):
        apfl(toy.quadratic(), toy.full_batch(), **options)
