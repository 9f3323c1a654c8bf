"""Counts with nouns."""


def count_noun(count: int, noun: str) -> str:
    """A count with its noun: "1 client", "2 clients"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
