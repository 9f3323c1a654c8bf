"""FLOPs of one local step of a run's own method, model and minibatch.

Nothing is trained or compiled: the step is traced and lowered, on the run's own data
set, which must be at hand.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from pfljax.bench import cost
from pfljax.bench.catalogue import Workload
from pfljax.bench.workloads import Ready
from pfljax.runs import checks, folder
from pfljax.runs.settings import Experiment
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
    """FLOPs of a step, means over clients: "products" of all models, and by "xla".

    What each of them counts, `cost.step_flops` and `cost.step_xla_flops` say.

    Raises:
      ValueError: the run's data cannot be made from its settings.
    """
    experiment = checks.resolve(folder.read_config(Path(run)))
    ready = _ready(experiment)
    return {
        "products": _mean(cost.step_flops, ready),
        "xla": _mean(cost.step_xla_flops, ready),
    }


def _mean(figure: Callable[[Ready], float | None], ready: Ready) -> float | None:
    """The mean of a figure over the clients; None where an architecture has none."""
    groups = ready.setting.groups
    if groups is None:
        return figure(ready)
    total = 0.0
    for group, task in enumerate(groups.tasks):
        algorithm = groups.algorithms[group]
        setting = ready.setting._replace(algorithm=algorithm, groups=None)
        value = figure(ready._replace(task=task, setting=setting))
        if value is None:
            return None
        total += len(groups.members(group, ready.workload.clients)) * value
    return total / ready.workload.clients


def _ready(experiment: Experiment) -> Ready:
    """The run as a workload, without a test set."""
    federation, _ = build_federation(experiment)
    shape = shape_of(experiment, federation)
    task = make_task(experiment, shape)
    local = experiment.training
    workload = Workload(
        model=experiment.method.model.name,
        shape=shape.input_shape,
        num_classes=shape.num_classes,
        clients=shape.num_clients,
        rows=None,
        cohort=experiment.participation.cohort,
        epochs=1,
        batch_size=local.batch_size,
        learning_rate=local.lr,
        rounds=1,
    )
    return Ready(
        name=experiment.folder,
        method=experiment.method.algorithm,
        workload=workload,
        task=task,
        setting=make_setting(experiment, task, shape),
        train=federation.train,
        test=None,
    )


def _millions(flops: float | None) -> str:
    return "-" if flops is None else f"{flops / 1e6:,.3f}"
