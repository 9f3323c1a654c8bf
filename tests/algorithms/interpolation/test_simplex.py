import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from pfljax.algorithms._affinity import Models
from pfljax.algorithms.interpolation import _simplex as simplex
from pfljax.conformance import toy

C, M, D = 7, 3, 11
RNG = np.random.default_rng(4)
CHANGES = RNG.normal(size=(C, D)) * np.linspace(3, 0.2, D)
KNOWN = np.array([1, 1, 0, 1, 1, 1, 1], bool)


def stored(changes=CHANGES, known=KNOWN):
    """The stored models, zeros for clients that sent nothing, in two leaves."""
    changes = np.where(known[:, None], changes, 0).astype(np.float32)
    leaves = {"a": changes[:, :6].reshape(C, 3, 2), "b": changes[:, 6:]}
    return Models(jax.tree.map(jnp.asarray, leaves), jnp.asarray(known, jnp.float32))


def by_svd(changes, count=M):
    """PCA of the rows, the largest score of each component positive."""
    u, s, _ = np.linalg.svd(changes - changes.mean(0), full_matrices=False)
    scores = (u * s)[:, :count]
    greatest = scores[np.abs(scores).argmax(0), np.arange(count)]
    return scores * np.sign(greatest)


def nearest(row, z):
    """The nearest point of {beta >= 0, sum beta = z}: max(row - t, 0) for a t."""
    excess = lambda t: np.maximum(row - t, 0).sum() - z  # noqa: E731
    t = scipy.optimize.brentq(excess, row.min() - z, row.max(), xtol=1e-15)
    return np.maximum(row - t, 0) / np.maximum(row - t, 0).sum()


def riesz(points):
    square = ((points[:, None] - points) ** 2).sum(-1)
    pairs = np.triu_indices(len(points), 1)
    return np.log(np.mean(1 / np.maximum(square[pairs], 1e-8)))


def placed(changes):
    """The points of rows that are all known, and the energies of all scales."""
    scores = by_svd(changes)
    tried = [
        np.array([nearest(row, z) for row in scores])
        for z in np.linspace(1e-4, 1, 1000)
    ]
    energies = [riesz(points) for points in tried]
    return tried[int(np.argmin(energies))], energies


@pytest.mark.parametrize("scale", [0.1, 1.0], ids=["inside", "at vertices"])
def test_places_against_numpy(scale):
    """Where clients meet at vertices, the energy is almost that of those who meet."""
    found = np.asarray(simplex.place_clients(stored(scale * CHANGES), M))
    wanted, energies = placed(scale * CHANGES[KNOWN])
    np.testing.assert_allclose(riesz(found[KNOWN]), min(energies), atol=1e-5)
    np.testing.assert_allclose(found[KNOWN], wanted, atol=2e-3)
    np.testing.assert_allclose(found[~KNOWN], 1 / M, atol=1e-6)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    assert (found >= 0).all()
    assert np.ptp(energies) > 0.1  # the scale matters


def test_scores_are_the_principal_components():
    changes = np.where(KNOWN[:, None], CHANGES, 0)
    gram = jnp.asarray(changes @ changes.T, jnp.float32)
    found = np.asarray(
        simplex.principal_scores(gram, jnp.asarray(KNOWN, jnp.float32), M)
    )
    np.testing.assert_allclose(found[KNOWN], by_svd(CHANGES[KNOWN]), atol=1e-4)
    np.testing.assert_allclose(found[~KNOWN], 0, atol=1e-4)


def test_a_common_part_of_all_changes_places_nobody():
    """So weights and changes of them give the same points."""
    alike = np.asarray(simplex.place_clients(stored(CHANGES + RNG.normal(size=D)), M))
    np.testing.assert_allclose(alike, simplex.place_clients(stored(), M), atol=5e-3)


def test_points_follow_their_clients():
    order = RNG.permutation(C)
    found = simplex.place_clients(stored(CHANGES[order], KNOWN[order]), M)
    wanted = np.asarray(simplex.place_clients(stored(), M))[order]
    np.testing.assert_allclose(found, wanted, atol=5e-3)


@pytest.mark.parametrize("known", [np.zeros(C, bool), np.arange(C) == 2])
def test_where_clients_are_alike_all_are_at_the_centre(known):
    found = simplex.place_clients(stored(known=known), M)
    np.testing.assert_allclose(found, np.full((C, M), 1 / M), atol=1e-6)


def test_components_past_the_rank_are_zero():
    gram = jnp.eye(2)
    scores = simplex.principal_scores(gram, jnp.ones(2), 4)
    np.testing.assert_allclose(scores, [[0.5**0.5, 0, 0, 0], [-(0.5**0.5), 0, 0, 0]])


@pytest.mark.parametrize("radius", [0.0, 0.3, 5.0])
def test_points_near_one_stay_on_the_simplex_and_within_the_radius(radius):
    beta = jnp.array([0.7, 0.3, 0.0])
    keys = jax.random.split(jax.random.key(1), 400)
    drawn = np.asarray(jax.vmap(lambda key: simplex.draw_near(key, beta, radius))(keys))
    assert (drawn >= 0).all()
    np.testing.assert_allclose(drawn.sum(1), 1, atol=1e-6)
    distance = np.abs(drawn - np.asarray(beta)).sum(1)
    assert distance.max() <= radius + 1e-6
    if radius == 0.3:
        assert distance.mean() == pytest.approx(0.15, abs=0.02)  # U(0, 0.3)


def test_points_are_uniform_on_the_simplex():
    """Dirichlet(1, 1, 1): means 1 / 3, variances 1 / 18."""
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = np.asarray(jax.vmap(lambda key: simplex.draw(key, 3))(keys))
    np.testing.assert_allclose(drawn.mean(0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(drawn.var(0), 1 / 18, atol=0.005)


def test_vertices_share_all_but_the_weights_of_the_head():
    task = toy.classifier()
    params = task.init(jax.random.key(0))
    w = simplex.first(task, params, M, jax.random.key(1))
    kernels = w["head"]["kernel"]
    assert kernels.shape == (M, *params["head"]["kernel"].shape)
    np.testing.assert_array_equal(kernels[0], params["head"]["kernel"])
    assert np.abs(kernels[0] - kernels[1]).min() > 0
    for part, name in (("body", "layers_1"), ("head", "bias")):
        toy.assert_same(w[part][name], params[part][name])
    vertex = simplex.point(task, w, jnp.array([0.0, 1, 0]))
    np.testing.assert_array_equal(vertex["head"]["kernel"], kernels[1])
    middle = simplex.point(task, w)["head"]["kernel"]
    np.testing.assert_allclose(middle, np.mean(kernels, 0), rtol=1e-6)
