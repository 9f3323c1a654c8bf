import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.core import public_examples
from pfljax.core.types import ClientData, Examples

LABELS = np.array([0] * 12 + [1] * 6 + [2] * 2)


def public(shift=3):
    """20 examples of three classes, behind others of a fourth."""
    y = jnp.asarray([3] * shift + list(LABELS), jnp.int32)
    pool = Examples(x=jnp.zeros((len(y), 1)), y=y)
    return ClientData(pool, offset=jnp.int32(shift), size=jnp.int32(len(LABELS)))


@pytest.mark.parametrize(("count", "wanted"), [(10, [6, 3, 1]), (20, [12, 6, 2])])
def test_each_class_has_its_share_the_first_of_the_order(count, wanted):
    order = public_examples.draw_order(jax.random.key(4), len(LABELS))
    np.testing.assert_array_equal(np.sort(order), np.arange(20))
    chosen = np.asarray(public_examples.stratify(order, public(), count, 4))
    np.testing.assert_array_equal(np.bincount(LABELS[chosen]), wanted)
    for label, number in enumerate(wanted):
        of_class = [row for row in np.asarray(order) if LABELS[row] == label]
        assert set(chosen[LABELS[chosen] == label]) == set(of_class[:number])


def test_shares_hold_up_to_an_example():
    for count in (1, 2, 6, 13, 19):
        order = public_examples.draw_order(jax.random.key(count), len(LABELS))
        chosen = np.asarray(public_examples.stratify(order, public(), count, 4))
        assert len(set(chosen)) == count
        numbers = np.bincount(LABELS[chosen], minlength=3)
        share = count * np.bincount(LABELS) / len(LABELS)
        assert (np.abs(numbers - share) <= 1).all()


def test_another_key_draws_another_subset():
    drawn = [
        set(
            np.asarray(
                public_examples.stratify(
                    public_examples.draw_order(jax.random.key(seed), len(LABELS)),
                    public(),
                    5,
                    4,
                )
            ).tolist()
        )
        for seed in range(2)
    ]
    assert drawn[0] != drawn[1]


def test_a_server_without_examples_is_refused():
    public_examples.require_public("fedmd", 1)
    with pytest.raises(ValueError, match="fedmd needs examples at the server"):
        public_examples.require_public("fedmd", 0)
