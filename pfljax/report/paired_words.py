"""A comparison in words: who is ahead, by how much, and how sure that is."""

from collections.abc import Sequence

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report.compared import Comparison
from pfljax.runtime.words import number_in_words, number_of

KEY = (
    "Differences in points; in brackets the 95 % interval of each, on its own. "
    "p is after Holm's correction for several comparisons, and decides."
)


def key(comparisons: Sequence[Comparison]) -> str:
    """How to read the lines; empty where they have no numbers of the kind."""
    return KEY if any(np.isfinite(c.values["p_holm"]) for c in comparisons) else ""


def in_words(comparison: Comparison) -> str:
    """The line of a comparison.

    "ditto is ahead of local by 3.0 points [1.9, 4.2], p = .004 after Holm, five seeds
    of 40 clients each: 120 win, 20 tie, 60 lose."
    """
    a, b, values = comparison.method, comparison.against, comparison.values
    points = f"{100 * values['difference']:.1f} points"
    if np.isfinite(values["low"]):
        # z: an end that reads 0.0 has no sign.
        points += f" [{100 * values['low']:z.1f}, {100 * values['high']:z.1f}]"
    seeds = number_in_words(len(comparison.pair.seeds), "seed")
    p = values["p_holm"]
    if np.isnan(p):
        return f"{a} and {b} are {points} apart, which {seeds} cannot test."
    by_clients = " by clients alone" if len(comparison.pair.seeds) == 1 else ""
    sure = f"p {p_text(p)} after Holm{by_clients}, {seeds}{_clients(comparison)}"
    if p < LEVEL:
        return f"{a} is ahead of {b} by {points}, {sure}."
    return f"{a} cannot be told from {b}: {points}, {sure}."


def _clients(comparison: Comparison) -> str:
    """How many clients the seeds have, win and lose; empty where not known."""
    sizes = [len(values) for values in comparison.pair.counted]
    if not comparison.pair.clients:
        return ""
    # A client is counted once a seed, so their number alone would tell too many.
    how_many = f"{number_of(sum(sizes), 'client')} in all"
    if len(sizes) == 1:
        how_many = number_of(sizes[0], "client")
    elif len(set(sizes)) == 1:
        how_many = f"{number_of(sizes[0], 'client')} each"
    counts = [int(comparison.values[key]) for key in ("win", "tie", "lose")]
    win, tie, lose = counts
    return f" of {how_many}: {win} win, {tie} tie, {lose} lose"


def p_text(p: float) -> str:
    """A p of tests, in as many digits as matter: "= .004", "below .001"."""
    if p < 0.001:
        return "below .001"
    text = f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
    return f"= {text.removeprefix('0')}"
