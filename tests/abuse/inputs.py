"""Wrong inputs, and the class of the answer to each.

    python -m abuse.inputs                    all, a table at the end
    python -m abuse.inputs python data        these tables alone
    python -m abuse.inputs 'run --lr=nan'     those whose name has this text

Each input is given to pfljax in a fork of its own. What is accepted is stopped before
its first round; if it may be accepted, it is run for a round, and that has to end well.
"""

import os
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from abuse import (
    answers,
    bases,
    data_files,
    forked,
    found,
    jobs,
    own_methods,
    python_calls,
    results,
    surroundings,
    values,
)
from abuse.answers import Answer
from abuse.values import Input

LIMIT = 180  # seconds of an answer: ResNet-152 compiles for a minute
SLOW = 30  # seconds of an answer that are told
MEMORY = 16 * 2**30  # bytes of address space: beyond them an input takes the machine
SHARES = {"commands": 0.35, "calls": 0.5, "choices": 0.5}  # of the largest tables
PRINTED = 40  # answers of a class
READ_EARLY = ("JAX_", "XLA_")  # variables that JAX reads when it is loaded


def tables() -> dict[str, list[Input]]:
    """The inputs by table."""
    return {
        "commands": list(values.commands()),
        "calls": list(values.calls()),
        "choices": list(values.choices()),
        "python": list(python_calls.table()),
        "data": list(data_files.table()),
        "found": list(found.table()),
        "results": list(results.table()),
        "own": list(own_methods.table()),
    }


def chosen(wanted: list[str] | None = None) -> Iterator[tuple[str, Input]]:
    """The inputs of this seed and size, of all tables or those that are named."""
    for table, inputs in tables().items():
        if wanted and table not in wanted:
            continue
        share = SHARES.get(table, 1) * surroundings.SCALE
        draw = surroundings.chance("inputs", table)
        for given in inputs:
            if draw.random() < share:
                yield table, given


def main(wanted: list[str]) -> int:
    """Gives the inputs, or those of these names; the exit code."""
    with surroundings.workplace("inputs") as folder:
        forked.preload()
        import pfljax.data.sources.tfds  # noqa: F401

        os.environ[bases.PLACE] = str(folder / "bases")
        os.environ[python_calls.RUN] = str(folder / "run")
        jobs.finish(jobs.JOBS["device"], folder / "run")
        picked = list(chosen(wanted))
        if not picked:
            every = [(t, i) for t, inputs in tables().items() for i in inputs]
            picked = [(t, i) for t, i in every if any(w in i.name for w in wanted)]
        judged: list[tuple[str, Input, Answer]] = []
        for number, (table, given) in enumerate(picked):
            answer = answered(given, folder / str(number))
            judged.append((table, given, answer))
            if len(picked) < PRINTED or answer.kind in answers.FAULTS:
                print(f"{answer.kind}: [{given.name}] {answer.line[:300]}", flush=True)
    return told(judged)


def told(judged: list[tuple[str, Input, Answer]]) -> int:
    """Prints the unclear answers and the table; the exit code."""
    unclear = [(i, a) for _, i, a in judged if a.kind == "unclear"]
    for given, answer in unclear[:PRINTED]:
        print(f"unclear: [{given.name}] {answer.line[:300]}")
    rows = []
    for table in dict.fromkeys(table for table, *_ in judged):
        counts = Counter(a.kind for name, _, a in judged if name == table)
        row = {"inputs": table, "number": sum(counts.values())}
        rows.append(row | {kind: counts[kind] for kind in answers.CLASSES})
    total = {key: sum(row[key] for row in rows) for key in rows[0] if key != "inputs"}
    print(surroundings.table([*rows, {"inputs": "all"} | total]), flush=True)
    return int(any(total[kind] for kind in answers.FAULTS))


def answered(given: Input, place: Path) -> Answer:
    """The answer to one input, in a folder of its own, which is deleted."""
    place.mkdir(parents=True)
    if given.make:
        given.make(place)
    answer = _answer(given, place, train=given.whole)
    if answer.kind == "harmless" and given.check is not None:
        answer = _checked(given.check, place, answer)
    elif answer.kind == "harmless" and not given.whole:
        answer = _answer(given, place, train=True)
    shutil.rmtree(place)
    return answer


def _checked(check: Callable[[Path], object], place: Path, answer: Answer) -> Answer:
    """The answer, or that what was accepted has ended wrong."""
    said = place.with_name(f"{place.name}-said")
    difference = forked.holds(partial(check, place), said)
    shutil.rmtree(said)
    return Answer("silent", difference) if difference else answer


def _answer(given: Input, place: Path, train: bool) -> Answer:
    said = place.with_name(f"{place.name}-said")
    started = time.monotonic()
    begun = _started(given, place, train, said)
    code = forked.wait(begun, LIMIT)
    answer = answers.classify(code, begun.said(), given.names, given.may)
    shutil.rmtree(said)
    if time.monotonic() - started > SLOW and code is not None:
        print(f"slow: [{given.name}] {time.monotonic() - started:.0f} s", flush=True)
    return answer


def _started(given: Input, place: Path, train: bool, said: Path) -> forked.Started:
    """The input, begun; in a Python of its own where JAX reads its environment anew."""
    env = {name: value.replace("{T}", str(place)) for name, value in given.env}
    if not any(name.startswith(READ_EARLY) for name in env):
        return forked.start(_call(given, place, train), said, **env)
    words = [word.replace("{T}", str(place)) for word in given.args]
    env = {"PFLJAX_DATA_DIR": str(place / "data")} | env
    return forked.start_real(words, said, report=False, **env)


def _call(given: Input, place: Path, train: bool) -> Callable[[], None]:
    """The input as a function; it ends before the first round unless it may train."""

    def call() -> None:
        os.chdir(place)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        if "PFLJAX_DATA_DIR" not in dict(given.env):
            os.environ["PFLJAX_DATA_DIR"] = str(place / "data")
        if not train:
            _stop_before_training()
        if given.args:
            words = [word.replace("{T}", str(place)) for word in given.args]
            forked.command(words, report=False)()
            return
        _python(given.source)

    return call


def _python(source: str) -> None:
    """The call as a script would make it, with the answer of `errors.in_one_line`."""
    from pfljax import report
    from pfljax.runtime import errors

    report.write_run_report = lambda folder: None
    with errors.in_one_line("pfljax"):
        eval(source, python_calls.namespace())


def _stop_before_training() -> None:
    from pfljax.simulate import loop

    def stop(*_: Any) -> None:
        sys.exit(0)

    loop.run_rounds = stop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
