"""Commands on a full disk, in a folder that nobody may write, with few files or bytes.

    python -m abuse.limits            all, a table at the end
    python -m abuse.limits disk:3     trial 3 of one kind

Each trial gives the command less than it needs: it must answer in one line and with
exit code 2, or do without. Then the limit is lifted, and the same command must end
with the bits of one that was never limited. A full disk is a tmpfs in a namespace of
its own; where the system does not grant one, the trials are skipped.
"""

import ctypes
import os
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from abuse import answers, forked, jobs, surroundings

LIMIT = 90  # seconds of a command
NEW_NAMESPACES = 0x10000000 | 0x00020000  # CLONE_NEWUSER, CLONE_NEWNS
REMOUNT = 32  # MS_REMOUNT
NO_RIGHT = 77  # the exit code of a trial that the system does not grant
JOBS = ("device", "host", "disk", "report", "sweep", "import")
OUTCOMES = ("same bits", "had enough", "skipped", "unclear", "wrong")
NAMES = ("disk", "write", "files", "memory", "allocate", "Out of memory", "limit")


class Kind(NamedTuple):
    """A limit: its trials, and what sets it to a share of all that is needed."""

    trials: int
    limit: Callable[[float, int, Path], None]


def _file_size(share: float, size: int, folder: Path) -> None:
    # Python does not see that a module's bytecode is cut, which others would load.
    sys.dont_write_bytecode = True
    # The system would send SIGXFSZ, which Python ignores: writes fail with EFBIG.
    _set(resource.RLIMIT_FSIZE, int(share * size) + 64)


def _open_files(share: float, size: int, folder: Path) -> None:
    _set(resource.RLIMIT_NOFILE, 12 + int(40 * share))


def _memory(share: float, size: int, folder: Path) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0])
    _set(resource.RLIMIT_AS, used * resource.getpagesize() + int(share * 2**30))


def _read_only(share: float, size: int, folder: Path) -> None:
    """The folder, or all that is in it, may not be written, by root neither."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount(folder, folder, b"", 4096, b"")  # MS_BIND
    _mount(folder, folder, b"", 4096 | REMOUNT | 1, b"")  # MS_RDONLY


def _set(kind: int, value: int) -> None:
    resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


KINDS = {
    "disk": Kind(30, lambda share, size, folder: None),
    "file size": Kind(14, _file_size),
    "open files": Kind(8, _open_files),
    "memory": Kind(8, _memory),
    "read-only": Kind(6, _read_only),
}


class Trial(NamedTuple):
    """A command below a limit, in a folder of its own."""

    name: str
    job: jobs.Job
    share: float  # of what the command needs
    size: int  # bytes that it writes
    base: Path  # with the folder of the whole command, and what it goes on in
    place: Path


def main(wanted: list[str]) -> int:
    """Runs the kinds, or single trials; the exit code."""
    with surroundings.workplace("limits") as folder:
        forked.preload()
        rows = []
        sizes: dict[str, int] = {}
        for word in wanted or list(KINDS):
            name, _, number = word.partition(":")
            count = surroundings.scaled(KINDS[name].trials)
            numbers = [int(number)] if number else range(count)
            ended = Counter(_trial(name, n, folder, sizes) for n in numbers)
            row = {"limit": name, "trials": len(numbers)}
            rows.append(row | {outcome: ended[outcome] for outcome in OUTCOMES})
    print(surroundings.table(rows), flush=True)
    return int(any(row["wrong"] for row in rows))


def _trial(name: str, number: int, folder: Path, sizes: dict[str, int]) -> str:
    draw = surroundings.chance("limits", name, number)
    job_name = draw.choice(JOBS)
    share = draw.random()
    job = jobs.JOBS[job_name]
    base = folder / job_name
    if job_name not in sizes:
        sizes[job_name] = _prepare(job, base)
    place = folder / f"{name}-{number}".replace(" ", "-")
    place.mkdir()
    trial = Trial(name, job, share, sizes[job_name], base, place)
    scenario = forked.start(lambda: _scenario(trial), place / "said")
    code = forked.wait(scenario, 4 * LIMIT)
    outcome = scenario.out.read_text().strip().splitlines() if code == 0 else []
    word, _, said = outcome[-1].partition(": ") if outcome else ("", "", "")
    if code == NO_RIGHT:
        word, said = "skipped", scenario.said()
    elif not word:
        word = "wrong"
        said = f"{code}: {scenario.said()[-600:]}"
    if said:
        print(f"limits {name}:{number} ({job_name}, {share:.3f}) {word}: {said}")
    shutil.rmtree(place, ignore_errors=True)
    return word


def _prepare(job: jobs.Job, base: Path) -> int:
    """Runs the job without limits; bytes of what it wrote."""
    base.mkdir()
    if job.begun:
        jobs.begin(job, base / "base")
        shutil.copytree(base / "base", base / "whole")
    jobs.finish(job, base / "whole")
    return sum(path.stat().st_size for path in (base / "whole").rglob("*"))


def _scenario(trial: Trial) -> None:
    """In a fork: the command below its limit, then without, then the comparison."""
    disk = trial.place / "disk"
    disk.mkdir()
    if trial.name in ("disk", "read-only"):
        _enter_namespace()
    if trial.name == "disk":
        _mount(b"none", disk, b"tmpfs", 0, b"size=1g")
    folder = disk / "run"
    if trial.job.begun:
        shutil.copytree(trial.base / "base", folder)
    if trial.name == "disk":
        filled = shutil.disk_usage(disk).used
        kilobytes = 16 + int((filled + trial.share * trial.size * 1.2) / 1024)
        _mount(b"none", disk, b"tmpfs", REMOUNT, b"size=%dk" % kilobytes)
    code, said = _limited(trial, folder)
    answer = answers.classify(code, said, (*NAMES, str(folder)), "it had enough")
    if answer.kind in ("traceback", "hang", "silent"):
        print(f"wrong: {answer.kind}: {answer.line} {said[-300:]!r}")
        return
    if trial.name == "disk":
        _mount(b"none", disk, b"tmpfs", REMOUNT, b"size=1g")
    _compare(trial, folder, answer)


def _compare(trial: Trial, folder: Path, answer: answers.Answer) -> None:
    try:
        jobs.finish(trial.job, folder)
    except RuntimeError as error:
        print(f"wrong: it does not go on: {error}".replace("\n", " "))
        return
    whole = trial.base / "whole"
    check = trial.place / "check"
    difference = forked.holds(lambda: trial.job.same(folder, whole), check)
    if difference:
        print(f"wrong: other bits: {difference}")
    elif answer.kind == "unclear":
        print(f"unclear: {answer.line}")
    else:
        print("same bits" if answer.kind == "good" else "had enough")


def _limited(trial: Trial, folder: Path) -> tuple[int | None, str]:
    """The exit code and stderr of the command below the limit."""
    call = forked.parsed(trial.job.command(folder), trial.job.report)
    target = folder if trial.name == "read-only" else trial.place

    def limited() -> None:
        KINDS[trial.name].limit(trial.share, trial.size, target)
        call()

    said = trial.place / "limited"
    begun = forked.start(limited, said, **trial.job.environ(folder))
    if trial.name == "read-only":
        code = forked.wait(begun, LIMIT)
        libc().umount2(os.fsencode(folder), 2)
        return code, begun.said()
    return forked.wait(begun, LIMIT), begun.said()


def libc() -> ctypes.CDLL:
    """The C library, for what Python has no function of."""
    return ctypes.CDLL(None, use_errno=True)


def _enter_namespace() -> None:
    """A namespace in which we may mount; else the trial ends with NO_RIGHT."""
    ids = os.getuid(), os.getgid()
    if libc().unshare(NEW_NAMESPACES):
        _refuse("no namespace")
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {ids[0]} 1")
        Path("/proc/self/gid_map").write_text(f"0 {ids[1]} 1")
    except OSError as error:
        _refuse(str(error))


def _mount(
    source: Path | bytes, target: Path, kind: bytes, flags: int, data: bytes
) -> None:
    place = os.fsencode(target)
    if libc().mount(os.fsencode(source), place, kind or None, flags, data or None):
        _refuse(f"mount: {os.strerror(ctypes.get_errno())}")


def _refuse(reason: str) -> None:
    print(f"the system does not grant it: {reason}", file=sys.stderr)
    sys.exit(NO_RIGHT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
