"""How a run is doing: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Show = Callable[..., None]


@contextmanager
def progress(total: int, done: int, cohort: int, quiet: bool = False) -> Iterator[Show]:
    """Gives show(round, loss=..., accuracy=...), called after each chunk of rounds."""
    if quiet:
        yield lambda round_, **figures: None
        return
    measure = _pace()
    if sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(total=total, initial=done, unit="round") as bar:

            def show(round_: int, **figures: Any) -> None:
                speed = measure(round_, "accuracy" in figures)
                clients = {"clients/s": f"{cohort * speed:.0f}"} if speed else {}
                bar.set_postfix({**_written(figures), **clients}, refresh=False)
                bar.update(round_ - bar.n)

            yield show
        return

    def line(round_: int, **figures: Any) -> None:
        evaluated = "accuracy" in figures
        speed = measure(round_, evaluated)
        if not evaluated and round_ < total:
            return
        words = [f"{name} {value}" for name, value in _written(figures).items()]
        if speed:
            left = (total - round_) / speed
            words += [f"{cohort * speed:.0f} clients/s", f"{left:.0f} s left"]
        print(
            f"round {round_}/{total}: " + ", ".join(words), file=sys.stderr, flush=True
        )

    yield line


def _pace() -> Callable[[int, bool], float | None]:
    """Rounds a second as a function of the round, and of whether it was evaluated.

    Counted from the first call, and anew from the first evaluation: both compile, and
    have no speed themselves.
    """
    starts: list[tuple[int, float]] = []
    seen: set[bool] = set()

    def measure(round_: int, evaluated: bool) -> float | None:
        now = time.monotonic()
        if not starts or (evaluated and True not in seen):
            starts.append((round_, now))
            seen.add(evaluated)
            return None
        since, then = starts[-1]
        return (round_ - since) / max(now - then, 1e-9)

    return measure


def _written(figures: dict[str, float | None]) -> dict[str, str]:
    """Figures in four digits; None is what JSON has for NaN."""
    return {
        name: "nan" if value is None else f"{value:.4f}"
        for name, value in figures.items()
    }
