"""Prepares a run: its settings, data, compiled functions and folder.

Mistakes in settings and data are found here, before anything trains.
"""

from collections.abc import Callable, Collection
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.precision import EXACT
from pfljax.core.requirements import require, require_call
from pfljax.core.types import RunState, Task
from pfljax.data import Federation, check_federation
from pfljax.runs import checks, claims, folder, partition
from pfljax.runs.result import Evaluation
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.runtime.processes import ask, check_same, say
from pfljax.simulate import (
    architectures,
    arguments,
    clocks,
    malicious,
    simulation,
    width,
)
from pfljax.simulate.components import resolve_model
from pfljax.simulate.evaluation import list_splits
from pfljax.simulate.export import load_initial
from pfljax.simulate.federation import (
    build_federation,
    describe_scaling,
    describe_split,
)
from pfljax.simulate.place import place
from pfljax.simulate.simulation import Simulation

# (round, evaluation, state) -> whether the run stops here.
Callback = Callable[[int, Evaluation, RunState], bool | None]
ARGUMENTS = ("round", "metrics", "state")  # of a callback


class Run(NamedTuple):
    """The parts of a run that do not change from round to round."""

    experiment: Experiment
    sim: Simulation
    federation: Federation
    unseen: Federation | None
    path: Path
    history: dict[str, list[np.ndarray]]  # for clients.npz, by evaluation
    describe: Callable[[], Any]  # writes partition.npz
    callback: Callback | None = None  # called after each evaluation


def check_callback(callback: Any) -> None:
    """Raises a ValueError unless it is None or a function of `ARGUMENTS`."""
    if callback is not None:
        expected = f"a function of {', '.join(ARGUMENTS)}"
        require_call("callback", callback, ARGUMENTS, expected)


def validate(
    experiment: Experiment, federation: Federation | None, task: Task | None
) -> Experiment:
    """The experiment with all settings checked and resolved."""
    if federation is not None:
        check_federation(federation)
    resolved = complete(experiment, federation, task)
    checks.check(resolved, own_model=task is not None, own_data=federation is not None)
    # The caller knows the folder as `experiment.folder`.
    resolved = checks.resolve(resolved, experiment.folder)
    check_same("settings", repr(resolved))
    return resolved


def complete(
    experiment: Experiment, federation: Federation | None, task: Task | None
) -> Experiment:
    """The experiment with the clients, model and precision of the arguments.

    Raises:
      ValueError: an argument contradicts a setting, or has another type.
    """
    arguments.check_experiment(experiment)
    arguments.check_task(task)
    if federation is not None:
        arguments.check_dealing(experiment, federation)
        experiment = experiment.replace(clients=federation.num_clients)
    if task is None:
        return experiment
    # The default is not checked: the run has the precision of the task.
    if experiment.precision != EXACT:
        arguments.check_precision(experiment.precision, task)
    experiment = experiment.replace(precision=task.precision)
    if experiment.model.name == "auto":
        experiment = experiment.replace(model="own")
    return experiment


def begin(
    experiment: Experiment,
    federation: Federation | None,
    task: Task | None,
    path: Path,
    quiet: bool,
    traced: Collection[str] = (),
) -> Run:
    """Prepares the run in `path`, and writes its settings there.

    The numbers `traced` are those of `simulation`.

    Raises:
      ValueError: the data or the width do not fit.
      FolderError: the folder was begun with other data, or with another store.
    """
    # The number of devices must be set before JAX starts, as it does for the data.
    devices.prepare()
    devices.check(experiment.devices)
    training, unseen = build_federation(experiment, federation)
    _check_patience(experiment, training)
    manifest = partition.manifest(training, unseen, from_python=federation is not None)
    check_same("data", repr(claims.identity(manifest)))
    initial = load_initial(experiment, path)
    sim = width.choose(experiment, training, task, path, traced, initial)
    malicious.malicious_share(sim.setting.channel, training)  # checks it
    # The folder is begun last, so that corrected settings can use the same one.
    described = manifest | _describe(experiment, training, path)
    for name in ask(claims.begin, path, experiment, described, sim.setting.width):
        say(f"pfljax: {name} has changed since the run began")
    if initial is not None:
        ask(folder.write_arrays, path / folder.INITIAL, initial.arrays)
    if not quiet:
        _announce(sim, training, own_task=task is not None)
    examples = partition.examples(training, unseen)
    return Run(
        experiment=experiment,
        sim=sim,
        federation=place(sim, training),
        unseen=unseen and place(sim, unseen, training.num_clients),
        path=path,
        history={},
        describe=partial(ask, folder.write_partition, path, described, examples),
    )


def _announce(sim: Simulation, training: Federation, own_task: bool) -> None:
    """Says what devices there are, how clients are evaluated, and what models see."""
    lines = [simulation.describe(sim), describe_split(training)]
    # A task of one's own scales its input itself.
    if not own_task:
        tasks = [architecture.task for architecture in sim.architectures]
        lines.append(f"models see {describe_scaling(training, tasks)}")
    for line in filter(None, lines):
        say_once(f"pfljax: {line}")


@cache
def say_once(line: str) -> None:
    """Says it, but not again: the runs of a comparison use the same devices."""
    say(line)


def _describe(
    experiment: Experiment, federation: Federation, path: Path
) -> dict[str, Any]:
    """The model and the checksum of device files, for partition.npz."""
    input_shape = federation.train.examples.x.shape[1:]
    of_data = input_shape, federation.kind, federation.num_classes
    model = str(resolve_model(experiment, *of_data))
    if experiment.models:
        model = ",".join(map(str, architectures.list_models(experiment)))
    crc = clocks.devices_crc(experiment)
    if crc is None:
        return {"model": model}
    ask(claims.check_devices, path, crc)
    return {"model": model, claims.DEVICES: crc}


def check_method(
    experiment: Experiment,
    federation: Federation | None,
    task: Task | None,
    traced: Collection[str] = (),
) -> Experiment:
    """Refuses a method that does not fit the model, the clients or the mode.

    Nothing is compiled or written. A run with these settings uses the same functions.
    Returns the settings, checked and resolved.
    """
    experiment = validate(experiment, federation, task)
    devices.prepare()
    training, _ = build_federation(experiment, federation)
    initial = load_initial(experiment, Path(experiment.folder))
    simulation.simulation(experiment, training, task, traced, initial)
    return experiment


def check_data(
    experiment: Experiment, federation: Federation | None, path: Path
) -> None:
    """Refuses a federation other than that of the finished run in `path`."""
    if federation is not None:
        training, unseen = build_federation(experiment, federation)
        manifest = partition.manifest(training, unseen, from_python=True)
        ask(claims.check_data, path, manifest)


def _check_patience(experiment: Experiment, federation: Federation) -> None:
    """Refuses patience without validation examples, by which it is measured."""
    patience = experiment.patience
    can_wait = patience is None or "validation" in list_splits(federation)
    expected = "None, or validation examples by which to stop: --validation 0.1"
    require("patience", patience, can_wait, expected)
