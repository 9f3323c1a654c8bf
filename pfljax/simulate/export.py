"""Exports the personal model of a client, or the server's, as named arrays."""

from pathlib import Path
from typing import Any

import numpy as np

from pfljax import algorithms
from pfljax.core import factories, frozen, tree
from pfljax.core.requirements import require, require_a
from pfljax.core.types import RunState, Task
from pfljax.data import Federation, check_federation
from pfljax.evaluation.programs import client_models
from pfljax.evaluation.views import PERSONAL
from pfljax.runs import (
    checkpoint,
    checks,
    claims,
    config,
    exported,
    folder,
    partition,
)
from pfljax.runs.exported import load_params as load_params
from pfljax.runs.settings import Experiment
from pfljax.runtime.processes import say
from pfljax.simulate import architectures, arguments, components, simulation
from pfljax.simulate.blocks import take
from pfljax.simulate.exported_models import make_predict
from pfljax.simulate.federation import build_federation
from pfljax.simulate.first_model import Initial
from pfljax.simulate.population import open_to_read
from pfljax.simulate.shape import Shape

A_CLIENT = "the number of a client, from 0 on"


def load_state(
    path: str | Path, federation: Federation | None = None, task: Task | None = None
) -> tuple[simulation.Simulation, Federation, RunState]:
    """Loads (simulation, federation, newest state) of a run folder without changing it.

    A run with a federation or a task of your own needs them here again.
    """
    arguments.check_path("path", path)
    arguments.check_task(task)
    path = Path(path)
    experiment = folder.read_config(path)
    if federation is not None:
        check_federation(federation)
    claims.check_python(path, federation, task)
    if task is not None:
        arguments.check_precision(experiment.precision, task)
    training, unseen = build_federation(experiment, federation)
    manifest = partition.manifest(training, unseen, from_python=federation is not None)
    claims.check_data(path, manifest)
    # One device is enough to read a model.
    on_one_device = experiment.replace(devices=1, pin_clients=False)
    initial = load_initial(experiment, path)
    sim = simulation.simulation(on_one_device, training, task, initial=initial)
    saved = checkpoint.restore(
        path / "checkpoints",
        simulation.abstract(sim),
        config.digest(experiment),
        say,
        repair=False,
    )
    if saved is None:
        raise folder.FolderError(f"{path} has no checkpoint yet; run it first")
    return sim, training, saved.state


def load_initial(experiment: Experiment, path: Path) -> Initial | None:
    """The model that a run starts from; None if it is drawn.

    A run that has begun in the folder `path` has its own copy.

    Raises:
      ValueError: `initial` is neither a run folder nor a file.
      FolderError: the run has no checkpoint, or the file is damaged.
    """
    if experiment.initial is None:
        return None
    source = Path(experiment.initial)
    if (path / folder.INITIAL).exists():
        arrays = folder.read_arrays(path / folder.INITIAL)
    elif source.is_file():
        arrays = exported.read_arrays(source)
    else:
        expected = "a run folder, or a file of `pfljax export`"
        require("initial", experiment.initial, source.is_dir(), expected)
        arrays = _name(server_model(source))
    checksum = 0
    for array in arrays.values():
        checksum = partition.crc(array, checksum)
    return Initial(checksum, arrays)


def _name(model: Any) -> dict[str, np.ndarray]:
    """The arrays of a model by name."""
    return {name: np.asarray(leaf) for name, leaf in tree.paths(model).items()}


def load_task(path: str | Path, client: int = 0) -> Task:
    """The model of a run folder with its normalisation; it needs no data.

    `task.predict(params, Batch.full(x))` gives logits for raw examples x [B, ...] by
    the method's model, which may be two networks, or a network and prototypes. If
    clients have several architectures, it is the model of client number `client`.

    Raises:
      ValueError: there is no such client.
      FolderError: the run has a task of your own.
    """
    arguments.check_path("path", path)
    path = Path(path)
    experiment = folder.read_config(path)
    manifest = folder.read_partition(path)
    check_client(client, len(manifest["clients"]))
    if checks.names_own_model(experiment.model):
        raise folder.FolderError(
            f"{path} has a model of your own, {str(experiment.model)!r}; use the task "
            "that was given to run(..., task=...)"
        )
    factory = algorithms.method(experiment.algorithm.name)
    shape = Shape(
        num_clients=len(manifest["clients"]),
        input_shape=tuple(manifest["input_shape"]),
        num_classes=manifest["num_classes"],
        shift=manifest["shift"],
        scale=manifest["scale"],
        kind=manifest["kind"],
        # The sizes and the selection are left out: no model depends on them.
        for_method=tuple(
            factories.select_context(factory, max_examples=1, num_public=1).items()
        ),
    )
    task = components.make_task(experiment, shape)
    setting = components.make_setting(experiment, task, shape)
    algorithm = setting.algorithm
    groups = setting.groups
    if groups is not None:
        group = int(groups.of(client))
        algorithm, task = groups.algorithms[group], groups.tasks[group]
    return task._replace(predict=make_predict(algorithm, task, shape))


def personal_model(
    path: str | Path,
    client: int,
    federation: Federation | None = None,
    task: Task | None = None,
) -> Any:
    """The parameters of the personal model of client number `client`, as a pytree.

    Only clients that train are counted: client k is number `clients[k]` of the
    partition. Clients that are held out (`unseen`) have no state to export.
    """
    sim, federation, state = load_state(path, federation, task)
    check_client(client, federation.num_clients)
    ids = np.array([client])
    architecture = simulation.client_architecture(sim, client)
    models = client_models(architecture.setting, PERSONAL, 1)
    states = open_to_read(sim, Path(path), state).states(state, ids)
    train = take(federation.train, ids)
    stacked = models(state, states, ids, train, public=federation.public)
    return frozen.complete(architecture.task, tree.first(stacked))


def check_client(client: int, num_clients: int) -> None:
    """Raises a ValueError unless there is a client of this number."""
    require_a("client", client, (int, np.integer), A_CLIENT)
    expected = f"0 to {num_clients - 1}, a client that trains"
    require("client", client, 0 <= client < num_clients, expected)


def server_model(
    path: str | Path, federation: Federation | None = None, task: Task | None = None
) -> Any:
    """The server's model, or its whole state if it has no model."""
    sim, _, state = load_state(path, federation, task)
    algorithm = sim.setting.algorithm
    model = algorithm.server_model
    task = architectures.task_of_server(algorithm, sim.task)
    return frozen.complete(task, state.server if model is None else model(state.server))


def export(
    path: Path,
    client: int | None,
    out: Path,
    federation: Federation | None = None,
    task: Task | None = None,
) -> dict[str, np.ndarray]:
    """Writes a client's model, or with None the server's; returns its arrays.

    It is a .safetensors file if `out` ends so, and else an .npz.
    """
    check_file(out)
    if out.suffix == exported.SAFE:
        exported.import_safetensors()  # refused before anything is compiled
    if client is None:
        model = server_model(path, federation, task)
    else:
        model = personal_model(path, client, federation, task)
    arrays = _name(model)
    if not arrays:
        raise ValueError(f"the server of {path} has no state; give --client")
    exported.write_arrays(out, arrays)
    return arrays


def check_file(out: Path) -> None:
    """Raises a ValueError unless `out` can be written and is no file of a run."""
    if not out.parent.is_dir():
        raise ValueError(
            f"{out.parent} is not a folder; make it, or choose another --out"
        )
    # The file replaces what is there, which must not be a folder or /dev/null.
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is no file; expected one, such as model.npz")
    folder.check_not_own(out)
