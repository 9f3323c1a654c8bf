"""FLOPs of one local step of a run's own method, model and minibatch.

Nothing is trained or compiled: the step is traced and lowered, on the run's own data
set, which must be at hand. A run that has ended keeps these in its summary.
"""

from collections.abc import Sequence
from pathlib import Path

import jax

from pfljax.runs import checks, folder
from pfljax.simulate import step_cost
from pfljax.simulate.components import make_setting, make_task, shape_of
from pfljax.simulate.federation import build_federation


def is_run(name: str) -> bool:
    """Whether this names a run folder, and no workload."""
    return (Path(name) / "config.json").is_file()


def table(names: Sequence[str]) -> str:
    """A Markdown table, a line a run folder."""
    lines = ["| run | MFLOP a step | MFLOP by XLA |", "| --- | ---: | ---: |"]
    for name in names:
        flops = [_millions(value) for value in client_step(name).values()]
        lines.append(f"| {name} | {' | '.join(flops)} |")
    return "\n".join(lines)


def client_step(run: str | Path) -> dict[str, float | None]:
    """FLOPs of a step, those of `simulate.step_cost.client_step`.

    Raises:
      ValueError: the run's data cannot be made from its settings.
    """
    experiment = checks.resolve(folder.read_config(Path(run)))
    federation, _ = build_federation(experiment)
    shape = shape_of(experiment, federation)
    task = make_task(experiment, shape)
    setting = make_setting(experiment, task, shape)
    rows = federation.train.examples.x
    row = jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype)
    return step_cost.client_step(setting, task, shape.num_clients, row)


def _millions(flops: float | None) -> str:
    return "-" if flops is None else f"{flops / 1e6:,.3f}"
