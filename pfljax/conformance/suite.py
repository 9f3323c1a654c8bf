"""Methods of the registry against the laws."""

import inspect
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax

from pfljax import algorithms
from pfljax.conformance.laws import LAWS, bytes_are_as_declared
from pfljax.conformance.play import Case, play


class Verdict(NamedTuple):
    """Whether a method holds to a law."""

    label: str  # the method and its options
    law: str  # its number, and what it says
    error: Exception | None  # None where it holds

    def __str__(self) -> str:
        if self.error is None:
            return f"pass  {self.label}  {self.law}"
        reason = " ".join(str(self.error).split())
        return f"FAIL  {self.label}  {self.law}: {type(self.error).__name__}: {reason}"


def run(names: Iterable[str]) -> Iterator[Verdict]:
    """The verdicts on these methods, law by law, each by its default options.

    Raises:
      ValueError: a name is unknown; nothing was run then.
    """
    cases = [Case(name) for name in names]
    for case in cases:
        algorithms.method(case.name)
    for case in cases:
        yield from check(case)


def check(case: Case) -> Iterator[Verdict]:
    """The verdicts on one method, law by law.

    On the CPU, whatever other devices there are: the laws compare bits.
    """
    with jax.default_device(jax.devices("cpu")[0]):
        try:
            played = play(case)
        except Exception as error:
            yield Verdict(case.label, "it can be played", error)
            return
        for number, law in LAWS.items():
            if law is bytes_are_as_declared and case.bytes is None:
                continue
            says = (inspect.getdoc(law) or "").splitlines()[0]
            text = f"{number}: {says}"
            try:
                law(played)
            except Exception as error:
                yield Verdict(case.label, text, error)
            else:
                yield Verdict(case.label, text, None)
