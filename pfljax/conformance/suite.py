"""Methods of the registry against the laws."""

import inspect
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax

from pfljax import algorithms
from pfljax.conformance.laws import LAWS, Law, bytes_are_as_declared
from pfljax.conformance.play import Case, Played, play


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
            yield Verdict(
                label=case.label,
                law="it can be played",
                error=error,
            )
            return
        for number, law in LAWS.items():
            # By default options from the command line, nobody has declared any bytes.
            if law is bytes_are_as_declared and case.bytes is None:
                continue
            yield Verdict(
                label=case.label,
                law=f"{number}: {_says(law)}",
                error=_error(law, played),
            )


def _says(law: Law) -> str:
    """What a law says: the first line of its docstring."""
    docstring = inspect.getdoc(law) or ""
    return docstring.splitlines()[0]


def _error(law: Law, played: Played) -> Exception | None:
    """What the law raises of this method; None where it holds."""
    try:
        law(played)
    except Exception as error:
        # A law that cannot be judged is broken too: a method may fail in any of them.
        return error
    return None
