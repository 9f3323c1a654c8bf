"""The commands that are abused, and what two folders of one command must share."""

import contextlib
import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from abuse import forked

# Small, with states of clients, evaluations and saves in quick succession.
TRAINING = [
    *("--algorithm=fedper", "--model=mlp:hidden=(8,)", "--clients=6", "--cohort=3"),
    *("--epochs=1", "--batch-size=20", "--momentum=0.9", "--width=1"),
]
LIMIT = 300  # seconds of a command that nobody disturbs


class Job(NamedTuple):
    """A command, without --out, and how its folder is compared."""

    args: list[str]
    same: Callable[[Path, Path], None]
    report: bool = False
    begun: list[str] | None = None  # the command whose finished folder it goes on in

    def command(self, folder: Path) -> list[str]:
        """Its words, for this folder; of an import it is the folder of data."""
        if self.args[0] == "prepare":
            return [*self.args, "--raw", str(raw_archives())]
        return [*self.args, "--out", str(folder)]

    def environ(self, folder: Path) -> dict[str, str]:
        """What its environment has besides."""
        return {"PFLJAX_DATA_DIR": str(folder)} if self.args[0] == "prepare" else {}


def same_run(a: Path, b: Path) -> None:
    """Raises unless two runs ended with the same bits, and left nothing behind."""
    import tiny

    tiny.assert_same_run(a, b)
    nothing_left(a)


def same_report(a: Path, b: Path) -> None:
    """The same, with every figure and the whole page."""
    from pfljax.runs import folder

    same_run(a, b)
    assert folder.drawn(a), "report.html is not whole"
    names = [sorted(path.name for path in (f / "figures").iterdir()) for f in (a, b)]
    assert names[0] == names[1], names
    assert all(path.stat().st_size for path in (a / "figures").iterdir())


def same_sweep(a: Path, b: Path) -> None:
    """Raises unless two sweeps have the same table and arrays."""
    import tiny

    assert (a / "sweep.csv").read_bytes() == (b / "sweep.csv").read_bytes(), "csv"
    names = [sorted(path.name for path in (f / "runs").glob("*.npz")) for f in (a, b)]
    assert names[0] == names[1], names
    for name in names[0]:
        tiny.assert_same_arrays(a / "runs" / name, b / "runs" / name)
    nothing_left(a)


def same_data(a: Path, b: Path) -> None:
    """Raises unless two data folders have the same sets, and nothing else."""
    import tiny

    names = [sorted(path.name for path in folder.rglob("*.npz")) for folder in (a, b)]
    assert names[0] == names[1], names
    for name in names[0]:
        tiny.assert_same_arrays(next(a.rglob(name)), next(b.rglob(name)))
    nothing_left(a)


def nothing_left(folder: Path) -> None:
    """Raises where a temporary file of an earlier kill is still there."""
    left = [path for path in folder.rglob("*") if "tmp" in path.name]
    left += [path for path in folder.rglob("*") if path.name.endswith(".part")]
    assert not left, f"left behind: {left[0].relative_to(folder)} and so on"


def run(rounds: int, every: int, *more: str) -> list[str]:
    """`pfljax run` of so many rounds, evaluated and saved every few."""
    return ["run", *TRAINING, f"--rounds={rounds}", f"--eval-every={every}", *more]


SWEEP = ["sweep", *TRAINING, "--rounds=4", "--eval-every=2"]
SWEEP += ["--over", "lr", "0.05", "0.02", "--over", "seed", "0", "1", "2"]
SWEEP += ["--over", "batch_size", "20", "10"]
JOBS = {
    "device": Job(run(24, 3), same_run),
    "host": Job(run(24, 3, "--store=host"), same_run),
    "disk": Job(run(24, 3, "--store=disk"), same_run),
    "often": Job(run(24, 1), same_run),
    "report": Job(run(6, 3), same_report, report=True, begun=run(6, 3)),
    "extension": Job(run(24, 3), same_run, begun=run(9, 3)),
    "sweep": Job(SWEEP, same_sweep),
    "import": Job(["prepare", "mnist"], same_data),
}


def raw_archives() -> Path:
    """A folder of small archives such as MNIST's, which all trials share."""
    shared = Path(os.environ["ABUSE_RAW"])
    if shared.exists():
        return shared
    draw = np.random.default_rng(0)
    raw = shared.with_name(f"raw-{os.getpid()}")
    (raw / "mnist").mkdir(parents=True)
    for part, count in (("train", 4000), ("t10k", 400)):
        images = draw.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = draw.integers(0, 10, count, dtype=np.uint8)
        for name, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, values.ndim])
            head += np.array(values.shape, ">u4").tobytes()
            packed = gzip.compress(head + values.tobytes(), compresslevel=1)
            (raw / "mnist" / f"{part}-{name}-ubyte.gz").write_bytes(packed)
    # Another program of abuse may have been faster.
    with contextlib.suppress(OSError):
        raw.rename(shared)
    return shared


def whole(job: Job, folder: Path) -> Path:
    """The folder of the job, never interrupted."""
    finish(job, folder)
    return folder


def begin(job: Job, folder: Path) -> None:
    """Makes what the job goes on in; nothing for one from the start."""
    if job.begun:
        finish(Job(job.begun, job.same), folder)


def finish(job: Job, folder: Path) -> None:
    """Runs the command to its end; a RuntimeError says what it answers else."""
    said = folder.with_name(f"{folder.name}-said")
    call = forked.parsed(job.command(folder), job.report)
    begun = forked.start(call, said, **job.environ(folder))
    code = forked.wait(begun, LIMIT)
    if code != 0:
        raise RuntimeError(f"{job.command(folder)} ended with {code}: {begun.said()}")
    shutil.rmtree(said)
