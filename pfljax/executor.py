"""How many clients train at once: from a table, or a probe, and never beyond memory.

The table is `build.WIDTHS`; `width="auto"` times one round of each width instead.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax import build, folder
from pfljax.build import Simulation
from pfljax.config import Experiment
from pfljax.data import Federation
from pfljax.types import Task

FILE = "executor.json"  # what a probe chose: a resumed run keeps its bits


def choose(
    experiment: Experiment, federation: Federation, task: Task | None, path: Path
) -> Simulation:
    """The simulation at the width that the experiment asks for, or that is best.

    Raises:
      ValueError: it needs more memory than there is.
    """

    def made(width: int | None) -> Simulation:
        return build.simulation(experiment.replace(width=width), federation, task)

    if experiment.store != "device":  # pages are as large as they are made
        return made(build.width_of(experiment))
    if experiment.width == "auto" and jax.process_count() == 1:
        return made(_probed(experiment, federation, made, path))
    widths = [build.width_of(experiment)]
    if experiment.width is None or experiment.width == "auto":
        widths = [w for w in halves(experiment.cohort) if w <= (widths[0] or w)]
    return fitting(widths, made, federation)


def halves(cohort: int) -> list[int]:
    """Widths from the whole cohort down to 1."""
    widths = [cohort]
    while widths[-1] > 1:
        widths.append(-(-widths[-1] // 2))
    return widths


def fitting(
    widths: Sequence[int | None],
    made: Callable[[int | None], Simulation],
    federation: Federation,
    limit: int | None = None,
) -> Simulation:
    """The simulation of the first of `widths` that fits into `limit` bytes.

    None for what the machine has.
    """
    limit = free_bytes() if limit is None else limit
    needed = 0
    for width in widths:
        sim = made(width)
        needed = bytes_needed(sim, federation)
        if limit is None or needed <= limit:
            return sim
    raise ValueError(
        f"width {widths[-1]} needs {needed / 1e9:.2f} GB beside the data and the "
        f"states, and {(limit or 0) / 1e9:.2f} GB are free; choose a smaller width, "
        "cohort or model, or --store disk"
    )


def bytes_needed(sim: Simulation, federation: Federation) -> int:
    """Bytes of the compiled rounds beside their arguments, on all local devices."""
    train = build.placed(sim, federation).train
    rounds: Any = sim.rounds
    program = rounds.lower(build.abstract(sim), train, 1).compile()
    memory = program.memory_analysis()
    if memory is None:
        return 0
    more = memory.output_size_in_bytes - memory.alias_size_in_bytes
    share = len(jax.local_devices()) if jax.default_backend() == "cpu" else 1
    count = min(share, sim.setting.mesh.size if sim.setting.mesh else 1)
    return count * (memory.temp_size_in_bytes + max(0, more))


def free_bytes() -> int | None:
    """Bytes that a program may still take on the device; None where nobody tells."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = dict(line.split(":", 1) for line in lines)
    return int(found["MemAvailable"].split()[0]) * 1024


def _probed(
    experiment: Experiment, federation: Federation, made: Any, path: Path
) -> int:
    """The fastest width, by one timed round of each; remembered in the run folder."""
    if (path / FILE).exists():
        return folder.read_json(path / FILE)["width"]
    seconds: dict[int, float] = {}
    limit = free_bytes()
    for width in reversed(halves(experiment.cohort)):
        sim = made(width)
        if limit is not None and bytes_needed(sim, federation) > limit:
            break
        seconds[width] = _one_round(sim, federation)
    if not seconds:
        fitting([1], made, federation)  # raises
    best = min(seconds, key=seconds.__getitem__)
    return best


def remember(path: Path, experiment: Experiment, sim: Simulation) -> None:
    """Writes what a probe chose into the run folder."""
    if experiment.width == "auto" and not (path / FILE).exists():
        folder.write_json(path / FILE, {"width": sim.setting.width})


def _one_round(sim: Simulation, federation: Federation) -> float:
    """Seconds of a round, the compilation and a first round apart."""
    train = build.placed(sim, federation).train
    state, taken = sim.init(jax.random.key(0)), 0.0
    for _ in range(2):
        start = time.perf_counter()
        state, _ = sim.rounds(state, train, 1)
        jax.block_until_ready(state)
        taken = time.perf_counter() - start
    return taken
