"""What the programs of abuse share: seed, size, folder, and the environment of JAX.

Imported before JAX, which reads its environment when it is loaded.

    ABUSE_SEED    every choice follows from it (default 0)
    ABUSE_SCALE   share of the full number of trials (default 1)
    ABUSE_FOLDER  where to work; by default a temporary folder, deleted at the end
"""

import contextlib
import math
import os
import random
import resource
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

TESTS = Path(__file__).parent.parent
SEED = os.environ.get("ABUSE_SEED", "0")
SCALE = float(os.environ.get("ABUSE_SCALE", "1"))
SPENT = " s of a core"  # ends the line before a program's tables
FAST = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if version("jaxlib").startswith("0.10."):  # newer ones refuse the flag
    FAST += " --xla_cpu_use_fusion_emitters=false"


@contextlib.contextmanager
def workplace(name: str) -> Iterator[Path]:
    """A folder of this program below ABUSE_FOLDER; JAX is told of its environment."""
    given = os.environ.get("ABUSE_FOLDER")
    base = Path(given or tempfile.mkdtemp(prefix="pfljax-abuse-"))
    folder = base / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ.update(
        JAX_PLATFORMS="cpu",
        XLA_FLAGS=FAST,
        JAX_NUM_CPU_DEVICES="1",
        JAX_COMPILATION_CACHE_DIR=str(base / "xla"),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        ABUSE_RAW=str(base / "raw"),
        PFLJAX_DATA_DIR=str(base / "data"),
        TFDS_DATA_DIR=str(base / "no_tfds"),
        PYTHONPATH=os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        PYTHONUNBUFFERED="1",
        MPLCONFIGDIR=str(base / "matplotlib"),
    )
    print(f"{name}: ABUSE_SEED={SEED} ABUSE_SCALE={SCALE:g}, in {folder}", flush=True)
    try:
        yield folder
    finally:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = round(used.ru_utime + used.ru_stime)
        print(f"{name}: {spent}{SPENT}", flush=True)
        shutil.rmtree(folder if given else base, ignore_errors=True)


def chance(*what: object) -> random.Random:
    """The random numbers of one trial, the same wherever it stands in a program."""
    return random.Random("-".join(map(str, (SEED, *what))))


def scaled(count: int) -> int:
    """So many trials of a full run, at least one."""
    return max(1, math.ceil(count * SCALE))


def table(rows: list[dict]) -> str:
    """Rows of equal keys as aligned columns below their names."""
    cells = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
