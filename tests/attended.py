"""The game of FedAMP and HeurFedAMP in NumPy: only how a model is mixed differs."""

import numpy as np

from pfljax.conformance import toy


def assert_played(factory, mixed, pull, start, /, **options):
    """A method does as NumPy on quadratic clients, of whom not all take part.

    `mixed` (models, who has sent, k) is u_k of a client that has sent.
    """
    states, drawn = toy.run_quadratic(factory, rounds=4, start=start, **options)
    first = toy.flat(states[0].clients)[0]
    models, heard = np.tile(first, (4, 1)), set()
    for ids, state in zip(drawn, states[1:], strict=True):
        mean = models[list(heard)].mean(0) if heard else first
        sent = {}
        for k in ids:
            u = mixed(models, heard, k) if k in heard else mean

            def slope(v, k=k, u=u):
                return toy.gradient(k, v) + pull * (v - u)

            sent[k] = toy.descend(u if start == "cloud" else models[k], slope)
        for k, w in sent.items():
            models[k] = w
        heard |= set(sent)
        for known in (state.server.params, state.clients):
            found = toy.flat(known)
            np.testing.assert_allclose(found, models, rtol=1e-4, atol=1e-5)
    assert len(heard) == 4
