"""How a run is doing: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Show = Callable[..., None]


@contextmanager
def progress(total: int, done: int, cohort: int, quiet: bool = False) -> Iterator[Show]:
    """Gives show(round, loss=..., accuracy=...), called after each chunk of rounds."""
    if quiet:
        yield lambda round_, **figures: None
        return
    if sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(total=total, initial=done, unit="round") as bar:

            def show(round_: int, **figures: Any) -> None:
                speed = {"clients/s": f"{_rate(bar.format_dict, done, cohort):.0f}"}
                bar.set_postfix({**_written(figures), **speed}, refresh=False)
                bar.update(round_ - bar.n)

            yield show
        return
    start = time.monotonic()

    def line(round_: int, **figures: Any) -> None:
        if "accuracy" not in figures and round_ < total:
            return
        seconds = max(time.monotonic() - start, 1e-9)
        speed = (round_ - done) / seconds
        left = (total - round_) / speed if speed else float("inf")
        words = [f"{name} {value}" for name, value in _written(figures).items()]
        words += [f"{cohort * speed:.0f} clients/s", f"{left:.0f} s left"]
        print(
            f"round {round_}/{total}: " + ", ".join(words), file=sys.stderr, flush=True
        )

    yield line


def _rate(bar: Mapping[str, Any], done: int, cohort: int) -> float:
    return cohort * (bar["n"] - done) / max(bar["elapsed"], 1e-9)


def _written(figures: dict[str, float | None]) -> dict[str, str]:
    """Figures in four digits; None is what JSON has for NaN."""
    return {
        name: "nan" if value is None else f"{value:.4f}"
        for name, value in figures.items()
    }
