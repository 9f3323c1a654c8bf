"""Counts with their nouns."""

from pfljax.runtime import words


def test_one_is_singular():
    counts = [words.count_noun(n, "client") for n in (0, 1, 2, 18)]
    assert counts == ["0 clients", "1 client", "2 clients", "18 clients"]
