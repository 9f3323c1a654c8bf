"""Counts with their nouns."""

from pfljax.runtime import words


def test_one_is_singular():
    counts = [words.count_noun(n, "client") for n in (0, 1, 2, 18)]
    assert counts == ["0 clients", "1 client", "2 clients", "18 clients"]


def test_small_numbers_are_words():
    counts = [words.number_in_words(n, "seed") for n in (1, 9, 10)]
    assert counts == ["one seed", "nine seeds", "10 seeds"]
