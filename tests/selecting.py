"""Selections for the tests, of 8 clients, and rounds in which losses are given."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import selection
from pfljax.conformance import toy
from pfljax.core import factories
from pfljax.core.types import ClientData, Cohort, Examples

SIZES = np.array(toy.SIZES)
CLIENTS = len(SIZES)
SECONDS = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.0, 7.0])
LABELS = np.linspace(0, 1, CLIENTS)  # the least of each client, the greatest ...
GREATEST = np.minimum(LABELS + 0.3, 1)
COUNTS = np.linspace(0.8, 0.1, CLIENTS)  # ... and how many, in shares of all
PUBLIC_ROWS = 6
CHI_SQUARE = {3: 21.1, 4: 23.5, 7: 30.0, 9: 33.7}  # upper 1e-4 quantiles


def public():
    """The public examples: two of each of three classes, at the end of a pool."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(PUBLIC_ROWS + 2, 3))
    y = np.array([2, 2, 0, 1, 2, 0, 1, 2])
    pool = Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))
    return ClientData(pool, jnp.int32(2), jnp.int32(PUBLIC_ROWS))


def made(name, cohort=3, **changed):
    """The selection of this name; `changed` are options, and what clients are like."""
    factory = selection.SELECTIONS[name]
    of_run = {
        "num_clients": CLIENTS, "sizes": SIZES, "seconds": SECONDS, "rounds": 12,
        "least_label": LABELS, "greatest_label": GREATEST, "label_count": COUNTS,
        "epochs": 5, "task": toy.classifier(), "num_public": PUBLIC_ROWS,
    }  # fmt: skip
    return factory(cohort, **(factories.select_context(factory, **of_run) | changed))


def cohort_of(ids, mask=None, round_=0):
    """A cohort of these members; those with mask 0 do not report."""
    ids = jnp.asarray(ids, jnp.int32)
    draws = (ids < CLIENTS).astype(jnp.float32)
    mask = draws if mask is None else draws * jnp.asarray(mask, jnp.float32)
    return Cohort(
        ids=ids,
        weight=draws,
        mask=mask,
        draws=draws,
        num_clients=CLIENTS,
        round=jnp.int32(round_),
        key=jax.random.key(100 + round_),
        public=public(),
    )


class Round(NamedTuple):
    """A round of `play`, in NumPy."""

    before: object
    ids: np.ndarray
    mask: np.ndarray
    loss: np.ndarray
    after: object


def play(select, count, seed=0, full=20):
    """Rounds of a selection, whose members report losses that are drawn."""
    rng = np.random.default_rng(seed)
    choose = jax.jit(select.choose)
    work = jax.jit(select.work)
    update = jax.jit(select.update)
    state = select.init()
    rounds = []
    for index in range(count):
        ids = choose(state, jax.random.key(1000 * seed + index))
        steps = jnp.full(len(ids), full)
        _, mask = work(state, jax.random.key(index), ids, steps)
        members = cohort_of(ids, mask, index)
        loss = rng.uniform(0.1, 3, len(ids)).astype(np.float32)
        after = update(state, members, {"loss": jnp.asarray(loss)})
        rounds.append(
            Round(state, np.asarray(ids), np.asarray(members.mask), loss, after)
        )
        state = after
    return rounds


def draws(select, state, count, of=None):
    """The cohorts of `count` keys, i32[count, M]."""
    keys = jax.random.split(jax.random.key(of or 0), count)
    return np.asarray(jax.jit(jax.vmap(lambda key: select.choose(state, key)))(keys))


def assert_proportional(found, share):
    """Chi-square of the counts of each client against its share."""
    expected = np.asarray(share) * found.size
    counts = np.bincount(found.ravel(), minlength=len(share))
    some = expected > 0
    assert not counts[~some].any()
    chi_square = ((counts - expected)[some] ** 2 / expected[some]).sum()
    assert chi_square < CHI_SQUARE[some.sum() - 1]
