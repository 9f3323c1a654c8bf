"""Methods of the registry against the laws."""

import inspect
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax

from pfljax import algorithms, registry
from pfljax.conformance.laws import (
    LAWS,
    OF_STEPS,
    Law,
    bytes_are_as_declared,
    groups_are_free,
    origins_are_uploads_of_no_step,
)
from pfljax.conformance.play import Case, Played, play
from pfljax.simulate.architectures import takes_several


class Verdict(NamedTuple):
    """Whether a method holds to a law."""

    label: str  # the method and its options
    law: str  # its number, and what it says
    error: Exception | None  # None where it holds
    unjudged: str = ""  # why it cannot be judged

    def __str__(self) -> str:
        if self.unjudged:
            return f"skip  {self.label}  {self.law}: {self.unjudged}"
        if self.error is None:
            return f"pass  {self.label}  {self.law}"
        reason = " ".join(str(self.error).split())
        return f"FAIL  {self.label}  {self.law}: {type(self.error).__name__}: {reason}"


def run(
    names: Iterable[str],
    bytes: tuple[int, int] | None = None,
    ignores_steps: bool = False,
) -> Iterator[Verdict]:
    """The verdicts on these methods, law by law.

    Args:
      names: of methods, with options if need be: "ifca:averaging=gradients".
      bytes: that all of them declare, down and up; those of `Case`.
      ignores_steps: of all of them, as in `Case`.

    Raises:
      ValueError: there is no name, or a name or an option is unknown or missing;
        nothing was run then.
    """
    expected = "a list of methods, such as ['ditto']"
    if not isinstance(names, Iterable) or isinstance(names, str):
        registry.require_a("names", names, (), expected)
    cases = []
    for text in names:
        registry.require_a("one of the names", text, str, "that of a method")
        choice = registry.parse(text)
        registry.check("algorithm", choice, algorithms.method(choice.name))
        case = Case(choice.name, choice.kwargs, bytes, ignores_steps)
        cases.append(case)
    if not cases:
        raise ValueError(
            "no method is given; expected pfljax conformance NAME ..., such as ditto "
            "or ditto:lam=0.0"
        )
    # No `yield` here: what is wrong is told at the call.
    return itertools.chain.from_iterable(map(check, cases))


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
            said = f"{number}: {_says(law)}"
            unjudged = _unjudged(law, case, played)
            error = None if unjudged else _error(law, played)
            yield Verdict(
                label=case.label,
                law=said,
                error=error,
                unjudged=unjudged,
            )


def _unjudged(law: Law, case: Case, played: Played) -> str:
    """Why a law cannot be judged of this case; "" where it can."""
    if law is bytes_are_as_declared and case.bytes is None:
        return "no bytes are declared; give --bytes DOWN UP, or those of the Case"
    if law in OF_STEPS and case.ignores_steps:
        return "its uploads are the same whatever the steps"
    if law is origins_are_uploads_of_no_step and case.sends_statistics:
        return "it sends statistics of rows, which are no change of anything"
    if law is groups_are_free and not _takes_several(played):
        return "it takes clients of one architecture"
    if law is groups_are_free and played.setting.algorithm.architecture is not None:
        return "its server tells architectures apart"
    return ""


def _takes_several(played: Played) -> bool:
    """Whether the method takes clients of several architectures, without an error."""
    try:
        return takes_several(played.factory, played.case.options)
    # A broken method may raise anything: other laws tell of it.
    except Exception:
        return False


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
