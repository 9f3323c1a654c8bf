import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.conformance import toy
from pfljax.core import tree

A = {"x": jnp.asarray([3.0, 4.0]), "y": jnp.asarray([[0.0]])}
B = {"x": jnp.asarray([1.0, -1.0]), "y": jnp.asarray([[2.0]])}


def made(x, y):
    return {"x": jnp.asarray(x), "y": jnp.asarray([[y]])}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (tree.add(A, B), made([4.0, 3.0], 2.0)),
        (tree.sub(A, B), made([2.0, 5.0], -2.0)),
        (tree.scale(A, 2), made([6.0, 8.0], 0.0)),
        (tree.multiply(A, B), made([3.0, -4.0], 0.0)),
        (tree.axpy(2, A, B), made([7.0, 7.0], 2.0)),
        (tree.lerp(A, B, 0.25), made([2.5, 2.75], 0.5)),
        (tree.lerp(A, B, {"x": 0.0, "y": 1.0}), made([3.0, 4.0], 2.0)),
        (tree.lerp(A, B, 1.0), B),
        (tree.where(jnp.asarray(True), A, B), A),
        (tree.where(jnp.asarray(False), A, B), B),
        (tree.zeros(A), made([0.0, 0.0], 0.0)),
        (tree.full(A, 0.5), made([0.5, 0.5], 0.5)),
    ],
)
def test_arithmetic(found, expected):
    toy.assert_close(found, expected, 1e-7)


def test_products():
    assert tree.dot(A, B) == -1
    assert tree.square_norm(A) == 25
    assert tree.square_norm({}) == 0


def test_take_and_put_rows_of_the_client_axis():
    stacked = {"a": jnp.arange(12.0).reshape(4, 3), "b": jnp.arange(4)}
    index = jnp.asarray([2, 0])
    taken = tree.take(stacked, index)
    np.testing.assert_array_equal(taken["a"], [[6, 7, 8], [0, 1, 2]])
    toy.assert_same(tree.put(stacked, index, taken), stacked)
    new = tree.put(stacked, jnp.asarray([1, 4]), tree.scale(taken, -1))
    np.testing.assert_array_equal(new["b"], [0, -2, 2, 3])  # row 4 is dropped
    np.testing.assert_array_equal(tree.take(stacked, jnp.asarray([9]))["b"], [3])


def test_merge_undoes_split():
    chosen = tree.matches({"x": "head", "y": "body"}, "head")
    inside, outside = tree.split(A, chosen)
    assert inside["y"] is outside["x"] is None
    toy.assert_same(tree.merge(inside, outside), A)
    toy.assert_same(tree.merge(outside, inside), A)


def test_bytes_and_paths():
    mixed = {"a": jnp.zeros((2, 3)), "b": {"c": jnp.zeros(5, jnp.uint8)}}
    assert tree.nbytes(mixed) == tree.nbytes(jax.eval_shape(lambda: mixed)) == 29
    assert list(tree.paths(mixed)) == ["a", "b/c"]
    assert tree.paths(mixed)["b/c"] is mixed["b"]["c"]
