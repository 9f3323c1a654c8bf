"""The progress of a run: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pfljax.runtime import terminal

Show = Callable[..., None]


@contextmanager
def progress(
    total: int, done: int, cohort: int, quiet: bool = False, name: str = ""
) -> Iterator[Show]:
    """Gives show(round, loss=..., accuracy=...), to call after each chunk of rounds.

    Every line begins with `name`.
    """
    if quiet:
        yield lambda round_, **figures: None
        return
    measure = _pace()
    if sys.stderr.isatty():
        from tqdm import tqdm

        # A comparison has many runs: the bar of one that is finished goes.
        with tqdm(
            total=total, initial=done, unit="round", desc=name or None, leave=False
        ) as bar:

            def show(round_: int, **figures: Any) -> None:
                rounds_a_second = measure(round_, len(figures) > 1)
                postfix = _format(figures)
                if rounds_a_second:
                    postfix["clients/s"] = f"{cohort * rounds_a_second:.0f}"
                bar.set_postfix(postfix, refresh=False)
                bar.update(round_ - bar.n)

            yield show
        return

    def line(round_: int, **figures: Any) -> None:
        evaluated = len(figures) > 1  # more than the loss
        rounds_a_second = measure(round_, evaluated)
        # One line for each evaluation, as one for each round would fill a log.
        if not evaluated and round_ < total:
            return
        words = [f"{name} {value}" for name, value in _format(figures).items()]
        if rounds_a_second:
            seconds_left = (total - round_) / rounds_a_second
            words.append(f"{cohort * rounds_a_second:.0f} clients/s")
            words.append(f"{seconds_left:.0f} s left")
        whose = f"{name}, " if name else ""
        text = f"{whose}round {round_}/{total}: {', '.join(words)}"
        terminal.show(text, sys.stderr)

    yield line


def _pace() -> Callable[[int, bool], float | None]:
    """A function of (round, whether it was evaluated) -> rounds per second.

    It counts from the first call, and again from the first evaluation, because both
    compile.
    """
    starts: list[tuple[int, float]] = []
    evaluations: list[int] = []

    def measure(round_: int, evaluated: bool) -> float | None:
        now = time.monotonic()
        first_evaluation = evaluated and not evaluations
        if evaluated:
            evaluations.append(round_)
        if not starts or first_evaluation:
            starts.append((round_, now))
            return None
        start_round, start_time = starts[-1]
        return (round_ - start_round) / max(now - start_time, 1e-9)

    return measure


def _format(figures: dict[str, float | None]) -> dict[str, str]:
    """Figures in four digits; None is what JSON has for NaN."""
    return {
        name: "nan" if value is None else f"{value:.4f}"
        for name, value in figures.items()
    }
