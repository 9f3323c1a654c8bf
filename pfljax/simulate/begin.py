"""Makes a run ready: its data, its compiled functions, its folder.

All that could be wrong with settings and data is found here, before anything trains.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.communication import Traffic
from pfljax.core.types import RunState, Task
from pfljax.data import Federation
from pfljax.models import check_task
from pfljax.runs import baseline, claims
from pfljax.runs.judged import Evaluation
from pfljax.runs.provenance import of_run, rows_of_run
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.runtime.processes import ask, check_same, say
from pfljax.simulate import architectures, clocks, malicious, simulation, width
from pfljax.simulate.components import chosen_model
from pfljax.simulate.evaluation import splits_of
from pfljax.simulate.federation import build_federation
from pfljax.simulate.simulation import Simulation

# (round, what was judged, the state) -> whether the run ends here.
Callback = Callable[[int, Evaluation, RunState], bool | None]


def nothing() -> None:
    """Writes nothing: all was written."""


class Run(NamedTuple):
    """What the run loop holds; all but the last three follows from the config."""

    experiment: Experiment
    sim: Simulation
    federation: Federation
    unseen: Federation | None
    traffic: Traffic
    path: Path
    history: dict[str, list[np.ndarray]]  # of per_client.npz, by evaluation
    describe: Callable[[], Any] = nothing  # writes who has which rows
    callback: Callback | None = None  # asked after each evaluation


def begin(
    experiment: Experiment,
    federation: Federation | None,
    task: Task | None,
    path: Path,
    quiet: bool,
    alone: bool = True,
    callback: Callback | None = None,
) -> Run:
    """The run in `path`, ready to go, `alone` or with others; its folder has settings.

    Who has which rows is left to its `describe`.

    Raises:
      ValueError: the data, the baseline or the width do not fit.
      FolderError: the folder was begun on other data, or with another store.
    """
    # The number of devices is set before JAX starts; the data would start it.
    devices.prepare()
    devices.check(experiment.machine.devices)
    training, unseen = build_federation(experiment, federation)
    _check_patience(experiment, training)
    manifest = of_run(training, unseen, given=federation is not None)
    rows = rows_of_run(training, unseen)
    identity = [manifest.get(name) for name in (*claims.CLIENTS, *claims.CONTENT)]
    check_same("data", repr(identity))
    ask(baseline.check, experiment.evaluation.baseline, manifest)
    run = _prepare(experiment, training, unseen, task, path, alone)
    # The folder is begun last: corrected settings may then use the same one.
    model = str(chosen_model(experiment, tuple(manifest["input_shape"])))
    if experiment.method.models:
        model = ",".join(map(str, architectures.listed(experiment)))
    described = manifest | {"model": model}
    crc = clocks.devices_crc(experiment)
    if crc is not None:
        ask(claims.check_devices, path, crc)
        described |= {claims.DEVICES: crc}
    ask(claims.begin, path, experiment, described)
    describe = partial(ask, claims.describe_clients, path, described, rows)
    if not quiet:
        say(f"pfljax: {simulation.choices(run.sim)}")
    return run._replace(describe=describe, callback=callback)


def _check_patience(experiment: Experiment, federation: Federation) -> None:
    """Refuses patience where nothing tells what is better."""
    patience = experiment.evaluation.patience
    if patience is not None and "validation" not in splits_of(federation):
        raise ValueError(
            f"patience is {patience}, but no client has validation rows to stop by; "
            "give --validation 0.1, say, or leave patience out"
        )


def _prepare(
    experiment: Experiment,
    federation: Federation,
    unseen: Federation | None,
    task: Task | None,
    path: Path,
    alone: bool,
) -> Run:
    """The compiled functions, and the data on the devices."""
    input_shape = federation.train.examples.x.shape[1:]
    if task is not None:
        check_task(task, input_shape, federation.num_classes)
    sim = width.choose(experiment, federation, task, path, alone)
    malicious.share_of(sim.setting.channel, federation)  # refuses two of them
    return Run(
        experiment=experiment,
        sim=sim,
        federation=simulation.placed(sim, federation),
        unseen=unseen and simulation.placed(sim, unseen, federation.num_clients),
        traffic=sim.traffic(),
        path=path,
        history={},
    )
