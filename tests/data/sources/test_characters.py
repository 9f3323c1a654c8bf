"""Characters as indices into an alphabet."""

import pytest

from pfljax.data.sources.characters import ALPHABETS, indices


@pytest.mark.parametrize(("name", "count"), [("leaf", 80), ("printable", 100)])
def test_each_letter_has_its_index(name, count):
    letters = ALPHABETS[name]
    assert indices(letters, letters).tolist() == list(range(count))


def test_others_have_the_first():
    letters = ALPHABETS["leaf"]
    coded = indices("aé€😀~b", letters)
    assert coded.tolist() == [letters.index("a"), 0, 0, 0, 0, letters.index("b")]
