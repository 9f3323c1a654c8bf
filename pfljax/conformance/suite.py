"""Checks methods against the laws."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from pfljax import algorithms, models
from pfljax.conformance.laws import (
    LAWS,
    OF_STEPS,
    Law,
    groups_are_free,
    real_targets_fit,
)
from pfljax.conformance.trial import Case, Trial, run_rounds
from pfljax.conformance.uploads import (
    bytes_are_as_declared,
    origins_are_uploads_of_no_step,
)
from pfljax.core import components, factories
from pfljax.core.types import Local, Task
from pfljax.engine.setting import Groups
from pfljax.simulate.architectures import find_difference, link_tasks
from pfljax.simulate.shape import Shape


class Verdict(NamedTuple):
    """Whether a method satisfies a law."""

    label: str  # the method and its options
    law: str  # its number and its text
    error: Exception | None = None  # None if the law is satisfied
    skipped: str = ""  # the reason why the law does not apply

    def __str__(self) -> str:
        if self.skipped:
            return f"skip  {self.label}  {self.law}: {self.skipped}"
        if self.error is None:
            return f"pass  {self.label}  {self.law}"
        reason = " ".join(str(self.error).split())
        return f"FAIL  {self.label}  {self.law}: {type(self.error).__name__}: {reason}"


def run(
    names: Iterable[str],
    bytes: tuple[int, int] | None = None,
    ignores_steps: bool = False,
) -> Iterator[Verdict]:
    """Yields the verdicts on these methods, law by law.

    Args:
      names: the methods, possibly with options: "ifca:averaging=gradients".
      bytes: down and up, as in `Case`, for all of them.
      ignores_steps: as in `Case`, for all of them.

    Raises:
      ValueError: there is no name, or a name or an option is unknown or missing.
        Nothing runs in this case.
    """
    cases = []
    for text in names:
        choice = components.parse(text)
        factories.check("algorithm", choice, algorithms.method(choice.name))
        cases.append(Case(choice.name, choice.options, bytes, ignores_steps))
    if not cases:
        raise ValueError(
            "no method is given; expected pfljax conformance NAME ..., such as ditto "
            "or ditto:lam=0.0"
        )
    # Not a generator itself: errors are raised at the call.
    return (verdict for case in cases for verdict in check(case))


def check(case: Case, laws: Mapping[str, Law] = LAWS) -> Iterator[Verdict]:
    """Yields the verdicts on one method, law by law.

    Everything runs on the CPU, since the laws compare bits.
    """
    with jax.default_device(jax.devices("cpu")[0]):
        try:
            trial = run_rounds(case)
        except Exception as error:
            yield Verdict(case.label, "it runs", error)
            return
        for number, law in laws.items():
            summary = (inspect.getdoc(law) or "").splitlines()[0]
            label = f"{number}: {summary}"
            reason = _skip_reason(law, trial)
            error = None if reason else _error(law, trial)
            yield Verdict(case.label, label, error, reason)


def _skip_reason(law: Law, trial: Trial) -> str:
    """The reason why a law does not apply to this method; "" if it does."""
    case = trial.case
    if law is bytes_are_as_declared and case.bytes is None:
        return "no bytes are declared; give --bytes DOWN UP, or the bytes of the Case"
    if law in OF_STEPS and case.ignores_steps:
        return "its uploads do not depend on the steps"
    if law is origins_are_uploads_of_no_step and case.sends_statistics:
        return "it sends statistics of examples, not changes of a model"
    if law is real_targets_fit and trial.setting.algorithm.classes:
        return "it needs classes"
    if law is real_targets_fit and trial.setting.algorithm.linear:
        return "its model is linear"
    if law is groups_are_free and not _takes_several(trial):
        return "it takes clients of one architecture"
    if law is groups_are_free and trial.setting.algorithm.architecture is not None:
        return "its server keeps architectures apart"
    return ""


def _takes_several(trial: Trial) -> bool:
    try:
        return takes_several(trial.factory, trial.case.options)
    # A broken method may raise anything: other laws report it.
    except Exception:
        return False


def takes_several(factory: Callable, options: Mapping[str, Any]) -> bool:
    """Whether the method's server and traffic are the same for two different models."""
    local = Local(0.1, batch_size=2)
    of_run = {"rounds": 1, "max_examples": 9, "num_public": 1}
    context = factories.select_context(factory, **of_run)
    methods = [factory(task, local, **options, **context) for task in _two_models()]
    groups = Groups(tuple(methods), _two_models(), (0, 1))
    return find_difference(groups, Shape(2, (3,), 3)) is None


@functools.cache
def _two_models() -> tuple[Task, ...]:
    """Two linked architectures with equal heads and a common proxy."""
    proxy = models.task(models.mlp(3, hidden=(2, 4)), (3,))
    bodies = [models.mlp(3, hidden=hidden) for hidden in ((5, 4), (3, 4))]
    tasks = [models.task(body, (3,)) for body in bodies]
    peers = tuple(task._replace(proxy=proxy) for task in tasks)
    return link_tasks(peers)


def _error(law: Law, trial: Trial) -> Exception | None:
    try:
        law(trial)
    # A broken method may raise anything in any law: each is a verdict.
    except Exception as error:
        return error
    return None
