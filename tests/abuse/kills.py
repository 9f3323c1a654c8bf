"""Commands are killed again and again, and must end with the bits of one that was not.

    python -m abuse.kills              all kinds, a table at the end
    python -m abuse.kills save sweep   these kinds alone
    python -m abuse.kills save:17      trial 17 of one kind, with all that it did

A trial begins a command in a fork, waits until it has touched what the kind names,
waits a random while, and sends KILL, TERM or INT. So some times over; then the command
comes to its end, and its folder is compared with that of a command that nobody
disturbed. The answer to each signal is held to its form as well: one line and exit code
130 for INT. `PYTHONPATH=tests` and the seed of the table repeat a trial. Its moments
are those of the clock, so a failure may need a few tries.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from abuse import forked, jobs, surroundings

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOST = 14  # kills of a trial
PATIENCE = 20  # seconds from TERM or INT to the end
STOPPED = "stopped"  # a word of the line that answers INT


class Kind(NamedTuple):
    """When a command is killed."""

    job: str
    kills: int  # of a full run
    ready: str = ""  # a pattern of files; the wait begins as one of them changes
    spread: float = 1.0  # the wait, as a share of the command's time from there
    real: bool = False  # in a Python of its own


KINDS = {
    "begin": Kind("device", 90),
    "rounds": Kind("device", 120, "metrics.jsonl", 0.6),
    "save": Kind("device", 160, "checkpoints/*tmp*", 0.02),
    "evaluation": Kind("often", 110, "metrics.jsonl", 0.6),
    "host": Kind("host", 120, "clients/*", 0.6),
    "disk": Kind("disk", 120, "clients/*", 0.6),
    "extension": Kind("extension", 100, "*", 0.8),
    "report": Kind("report", 100, "figures*", 0.8),
    "sweep": Kind("sweep", 100, "*", 0.8),
    "import": Kind("import", 100, "*", 0.8),
    "command": Kind("device", 30, real=True),
}


class Trial(NamedTuple):
    """What came of one trial."""

    signals: list[str]
    fault: str = ""  # "wrong: ...", "refused: ...", "unclean: ..."


class Setting(NamedTuple):
    """A kind with what an undisturbed command of it left and took."""

    name: str
    kind: Kind
    whole: Path
    base: Path | None  # the folder that it goes on in
    seconds: float  # from `ready` to its end


def main(wanted: list[str]) -> int:
    """Runs the kinds, or single trials; the exit code."""
    with surroundings.workplace("kills") as folder:
        forked.preload()
        rows = []
        for word in wanted or list(KINDS):
            name, _, number = word.partition(":")
            setting = _prepared(name, folder / name)
            if number:
                trial = _trial(setting, int(number), folder / name / number)
                print(trial)
                rows.append(_row(name, [trial]))
            else:
                rows.append(_of_kind(setting, folder / name))
            print(surroundings.table(rows[-1:]), flush=True)
    print(f"\nkills: {sum(row['kills'] for row in rows)}")
    print(surroundings.table(rows), flush=True)
    # What was done counts, not what was planned: commands may end before their kill.
    faults = ("wrong", "refused", "unclean", "too few")
    return int(any(row.get(fault) for row in rows for fault in faults))


def _prepared(name: str, folder: Path) -> Setting:
    kind = KINDS[name]
    job = jobs.JOBS[kind.job]
    base = folder / "base" if job.begun else None
    if base:
        jobs.begin(job, base)
    whole = folder / "whole"
    jobs.finish(job, _fresh(base, whole))  # fills the cache of compiled programs
    timed = folder / "timed"
    before = _seen(_fresh(base, timed), kind.ready)
    process = _start(kind, job, timed, folder / "timed-said")
    started = time.monotonic()
    while kind.ready and _seen(timed, kind.ready) == before:
        if time.monotonic() - started > jobs.LIMIT or not forked.alive(process):
            break
        time.sleep(0.001)
    ready = time.monotonic()
    forked.wait(process, jobs.LIMIT)
    return Setting(name, kind, whole, base, time.monotonic() - ready)


def _fresh(base: Path | None, folder: Path) -> Path:
    if base:
        shutil.copytree(base, folder)
        # What is killed while it draws must have something to draw.
        shutil.rmtree(folder / "figures", ignore_errors=True)
        (folder / "report.html").unlink(missing_ok=True)
    return folder


def _start(kind: Kind, job: jobs.Job, folder: Path, said: Path) -> forked.Started:
    words = job.command(folder)
    environ = job.environ(folder)
    if kind.real:
        return forked.start_real(words, said, job.report, **environ)
    return forked.start(forked.parsed(words, job.report), said, **environ)


def _seen(folder: Path, pattern: str) -> set[tuple[str, int, int]]:
    """The files of the pattern, as they are now."""
    seen = set()
    for path in folder.glob(pattern) if pattern else ():
        try:
            status = path.stat()
        except OSError:
            continue
        seen.add((path.name, status.st_mtime_ns, status.st_size))
    return seen


def _of_kind(setting: Setting, folder: Path) -> dict:
    """Trials until there were as many kills as the kind asks for."""
    trials: list[Trial] = []
    wanted = surroundings.scaled(setting.kind.kills)
    began = time.monotonic()
    while sum(len(trial.signals) for trial in trials) < wanted and len(trials) < wanted:
        number = len(trials)
        place = folder / str(number)
        trials.append(_trial(setting, number, place))
        if trials[-1].fault:
            print(f"{setting.name}:{number} {trials[-1]}", flush=True)
        else:
            shutil.rmtree(place)
    row = _row(setting.name, trials)
    row["too few"] = max(0, wanted - row["kills"])
    row["seconds"] = round(time.monotonic() - began)
    return row


def _row(name: str, trials: list[Trial]) -> dict:
    sent = Counter(name for trial in trials for name in trial.signals)
    ended = Counter(trial.fault.partition(":")[0] or "same bits" for trial in trials)
    row = {"kind": name, "trials": len(trials), "kills": sum(sent.values())}
    row |= {name.name[3:]: sent[name.name[3:]] for name in dict.fromkeys(SIGNALS)}
    return row | {
        word: ended[word] for word in ("same bits", "refused", "wrong", "unclean")
    }


def _trial(setting: Setting, number: int, place: Path) -> Trial:
    job = jobs.JOBS[setting.kind.job]
    draw = surroundings.chance("kills", setting.name, number)
    place.mkdir(parents=True)
    folder = _fresh(setting.base, place / "run")
    signals: list[str] = []
    fault = ""
    for attempt in range(draw.randint(6, MOST)):
        said = place / f"said-{attempt}"
        sent, answer = _kill(setting, job, folder, said, draw)
        signals += [sent] if sent else []
        fault = fault or answer
        if not sent:
            break
    try:
        jobs.finish(job, folder)
    except RuntimeError as error:
        return Trial(signals, f"refused: {error}")
    wrong = forked.holds(lambda: job.same(folder, setting.whole), place / "compared")
    return Trial(signals, f"wrong: {wrong}" if wrong else fault)


def _kill(
    setting: Setting, job: jobs.Job, folder: Path, said: Path, draw: random.Random
) -> tuple[str, str]:
    """(the signal that met the command alive, what was odd about its answer)."""
    sent = draw.choice(SIGNALS)
    delay = draw.random() * setting.kind.spread * setting.seconds
    ready = setting.kind.ready
    before = _seen(folder, ready)
    process = _start(setting.kind, job, folder, said)
    while ready and forked.alive(process) and _seen(folder, ready) == before:
        time.sleep(0.002)
    until = time.monotonic() + delay
    while forked.alive(process) and time.monotonic() < until:
        time.sleep(0.0005)
    if not forked.alive(process):
        code = forked.wait(process, 1)
        return "", "" if code == 0 else f"refused: {process.said()[-500:]}"
    os.kill(process.pid, sent)
    name = sent.name[3:]
    code = forked.wait(process, PATIENCE)
    return name, _odd(name, code, process.said(), setting.kind.real)


def _odd(name: str, code: int | None, said: str, real: bool) -> str:
    """What is odd about the end of a process after this signal; empty for nothing."""
    if code is None:
        return f"unclean: it hangs after {name}: {said[-500:]}"
    if "Traceback" in said:
        return f"unclean: after {name}: {said[-500:]}"
    # A command that was at its end when the signal came has nothing to stop.
    if name == "INT" and code not in (0, 130, -signal.SIGINT):
        return f"unclean: {code} after {name}: {said[-500:]}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
