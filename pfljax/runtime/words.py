"""Words for people: one client, two clients."""

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def count_noun(count: int, noun: str) -> str:
    """A count with its noun: "1 client", "2 clients"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def number_in_words(count: int, noun: str) -> str:
    """The same with small counts in letters: "one seed", "12 seeds"."""
    number = NUMBERS[count] if count < len(NUMBERS) else str(count)
    return count_noun(count, noun).replace(str(count), number, 1)
