import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from pfljax.algorithms.global_model import _matching as matching

KEY = jax.random.key(5)
SPREAD = {"sigma0": 1.3, "sigma": 0.5, "gamma": 1.0}
CLIENTS, UNITS, COLUMNS = 5, 4, 4
MATCH = jax.jit(matching.match, static_argnums=(3, 5))


def matched(rows, places=8, clients=CLIENTS, **spread):
    """The shared units of the first clients, whose rows have a bias."""
    mean = np.float32([0, 0, 0, 0.1])
    prior = matching.Prior(mean=mean, **SPREAD | spread)
    present = np.float32(np.arange(CLIENTS) < clients)
    return MATCH(np.float32(rows), present, KEY, places, prior, 5)


def alike(shared, noise, seed=0):
    """Rows of clients, each of which has some of `shared` units, in any order."""
    rng = np.random.default_rng(seed)
    of_all = 2 * rng.normal(size=(shared, COLUMNS))
    rows = [of_all[rng.permutation(shared)[:UNITS]] for _ in range(CLIENTS)]
    return np.array(rows) + noise * rng.normal(size=(CLIENTS, UNITS, COLUMNS))


class Oracle:
    """The card's equations, with a list of shared units that grows and shrinks."""

    def __init__(self, rows, sigma0, sigma, gamma):
        self.rows, self.gamma = rows, gamma
        self.w_precision, self.precision0 = 1 / sigma**2, 1 / sigma0**2
        self.mean = np.zeros(rows.shape[-1])
        self.mean[-1] = 0.1
        # Of each shared unit who has it: (client, its unit).
        self.shared = [[(0, unit)] for unit in range(rows.shape[1])]

    def totals(self, members):
        total = sum(self.rows[j, unit] for j, unit in members)
        moment = self.mean * self.precision0 + total * self.w_precision
        return moment, self.precision0 + len(members) * self.w_precision

    def score(self, w, members):
        moment, s = self.totals(members)
        together = (w * self.w_precision + moment) ** 2 / (self.w_precision + s)
        clients, c = len(self.rows), min(len(members), 10)
        return np.sum(together - moment**2 / s) + np.log(c / (clients - c))

    def score_of_new(self, w, m):
        prior = self.mean * self.precision0
        together = (w * self.w_precision + prior) ** 2
        together = together / (self.w_precision + self.precision0)
        gain = np.sum(together - prior**2 / self.precision0)
        return gain - 2 * np.log(m) + 2 * np.log(self.gamma / len(self.rows))

    def visit(self, j, places):
        kept = [[who for who in unit if who[0] != j] for unit in self.shared]
        self.shared = [unit for unit in kept if unit]
        free = places - len(self.shared)
        score = [
            [self.score(w, unit) for unit in self.shared]
            + [self.score_of_new(w, m + 1) for m in range(free)]
            for w in self.rows[j]
        ]
        places = linear_sum_assignment(score, maximize=True)[1]
        known = len(self.shared)
        for unit, place in enumerate(places):
            if place < known:
                self.shared[place].append((j, unit))
            else:
                self.shared.append([(j, unit)])

    def values(self):
        """Each shared unit by who has it."""
        return {frozenset(unit): np.divide(*self.totals(unit)) for unit in self.shared}


def by_members(found, clients):
    """Each shared unit by who has it, as `Oracle.values`."""
    members = {}
    for j in range(clients):
        for unit, place in enumerate(np.asarray(found.assignment[j])):
            members.setdefault(int(place), set()).add((j, unit))
    return {frozenset(who): found.rows[place] for place, who in members.items()}


@pytest.mark.parametrize(("places", "clients"), [(8, 4)])
def test_matching_against_scipy(places, clients):
    """The number of places binds, or does not; one client may be absent."""
    rows = alike(6, noise=0.4)
    found = matched(rows, places, clients)
    oracle = Oracle(rows[:clients], **SPREAD)
    present = jnp.arange(CLIENTS) < clients
    order = jax.jit(matching.order_visits, static_argnums=2)(KEY, present, 5)
    for j in np.asarray(order):
        if j < clients:
            oracle.visit(int(j), places)
    wanted = oracle.values()
    rows_found = by_members(found, clients)
    assert rows_found.keys() == wanted.keys()
    assert (len(wanted) == places) == (places == 5)
    assert len({len(who) for who in wanted}) > 1
    for who, row in rows_found.items():
        np.testing.assert_allclose(row, wanted[who], rtol=1e-5, atol=1e-5)


def test_the_clients_that_have_a_unit_count_up_to_ten():
    count = jnp.float32([13, 0, 12, 10, 0, 1])
    found = jax.jit(matching.log_odds)(count, 14.0, 5.0)
    new = 2 * np.log(5 / 14)
    shared = np.log(10 / 4)
    wanted = [shared, new, shared, shared, new - 2 * np.log(2), np.log(1 / 13)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_permuted_units_are_matched_and_shrunk_by_the_prior_alone():
    rng = np.random.default_rng(1)
    of_all = rng.normal(size=(UNITS, COLUMNS))
    orders = [rng.permutation(UNITS) for _ in range(CLIENTS)]
    rows = np.array([of_all[order] for order in orders])
    free = matched(rows, sigma0=1e4, gamma=1e-3)
    shrunk = matched(rows, sigma0=1.0, sigma=1.0)
    prior = np.float64([0, 0, 0, 0.1])
    for order, *assignments in zip(
        orders, free.assignment, shrunk.assignment, strict=True
    ):
        unit = of_all[order]
        one, other = assignments
        np.testing.assert_allclose(free.rows[one], unit, atol=1e-5)
        np.testing.assert_allclose(
            shrunk.rows[other], (5 * unit + prior) / 6, atol=1e-5
        )
    assert not free.rows[UNITS:].any()


def test_more_gamma_makes_more_units_and_those_of_most_clients_come_first():
    rows = alike(6, noise=0.8)
    used = []
    for gamma in (1e-6, 5.0, 1e6):
        found = matched(rows, gamma=gamma)
        counts = np.bincount(np.ravel(found.assignment), minlength=8)
        assert (np.diff(counts) <= 0).all()
        assert not np.asarray(found.rows)[counts == 0].any()
        assert np.abs(np.asarray(found.rows)[counts > 0]).max(1).min() > 0
        used.append((counts > 0).sum())
    assert UNITS <= used[0] < used[2] == 8
    assert used == sorted(used)


def test_the_prior_of_a_bias_is_another_one():
    prior = matching.make_prior(COLUMNS, True, **SPREAD)
    np.testing.assert_allclose(prior.mean, [0, 0, 0, 0.1])
    assert (prior.sigma0, prior.sigma, prior.gamma) == (1.3, 0.5, 1.0)
    assert not matching.make_prior(COLUMNS, False, **SPREAD).mean.any()


def test_one_client_keeps_its_units_in_their_order():
    rows = alike(6, noise=0.8)
    found = matched(rows, clients=1, sigma0=1e4)
    np.testing.assert_array_equal(found.assignment[0], np.arange(UNITS))
    np.testing.assert_allclose(found.rows[:UNITS], rows[0], rtol=1e-5)


def test_a_sweep_visits_all_who_are_there_once_in_an_order_of_its_own():
    present = jnp.float32([1, 1, 1, 1, 0])
    visits = jax.jit(matching.order_visits, static_argnums=2)
    order = np.asarray(visits(KEY, present, 5))
    np.testing.assert_array_equal(order[:4], [1, 2, 3, 4])
    sweeps = order[4:].reshape(5, 5)
    np.testing.assert_array_equal(np.sort(sweeps[:, :4]), [np.arange(4)] * 5)
    assert len({tuple(sweep) for sweep in sweeps}) > 1
    # Empty places behind the others change no order.
    fewer = np.asarray(visits(KEY, present[:4], 5))
    np.testing.assert_array_equal(fewer[3:].reshape(5, 4), sweeps[:, :4])
    np.testing.assert_array_equal(visits(KEY, present, 0), order[:4])
