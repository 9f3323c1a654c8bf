"""One client's personal model, or the server's, as an .npz of named arrays."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import algorithms, registry
from pfljax.core import tree
from pfljax.core.types import ClientData, RunState, Task
from pfljax.data import Federation, check_federation
from pfljax.evaluation import views
from pfljax.registry import require_a
from pfljax.runs import checkpoint, checks, claims, config, folder, partition
from pfljax.runs.exported import load_params as load_params
from pfljax.simulate import arguments, components, simulation
from pfljax.simulate.exported_models import make_predict
from pfljax.simulate.federation import build_federation
from pfljax.simulate.population import open_to_read
from pfljax.simulate.shape import Shape

A_CLIENT = "the number of a client, from 0 on"


def load_state(
    path: str | Path, federation: Federation | None = None, task: Task | None = None
) -> tuple[simulation.Simulation, Federation, RunState]:
    """(simulation, federation, newest state) of a run folder, which is left as it is.

    A run that was given its federation, or its model, in Python needs them here again.
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
    manifest = partition.manifest(training, unseen, given=federation is not None)
    claims.check_data(path, manifest)
    # One device is enough to read a model, wherever the run was trained.
    on_one_device = experiment.replace(devices=1, pin_clients=False)
    sim = simulation.simulation(on_one_device, training, task)
    saved = checkpoint.restore(
        path / "checkpoints",
        simulation.abstract(sim),
        config.digest(experiment),
        _say,
        repair=False,
    )
    if saved is None:
        raise folder.FolderError(f"{path} has no checkpoint yet; run it first")
    return sim, training, saved.state


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def load_task(path: str | Path, client: int = 0) -> Task:
    """The model of a run folder with its normalisation; it needs no data.

    `task.predict(params, Batch.full(x))` makes logits of raw rows x [B, ...], of the
    method's model (a method may judge two networks in one, or a network and
    prototypes). Where clients have several architectures, it is that of client number
    `client`.

    Raises:
      ValueError: there is no such client.
      FolderError: the run was given a model of its own, which has its own task.
    """
    arguments.check_path("path", path)
    path = Path(path)
    experiment = folder.read_config(path)
    manifest = folder.read_partition(path)
    check_client(client, len(manifest["clients"]))
    if checks.names_own_model(experiment.model):
        raise folder.FolderError(
            f"{path} has a model of its own, {str(experiment.model)!r}; take "
            "the task that was given to run(..., task=...)"
        )
    factory = algorithms.method(experiment.algorithm.name)
    shape = Shape(
        num_clients=len(manifest["clients"]),
        input_shape=tuple(manifest["input_shape"]),
        num_classes=manifest["num_classes"],
        shift=manifest["shift"],
        scale=manifest["scale"],
        # The sizes and the selection are left out: no model depends on them.
        for_method=tuple(
            registry.select_context(factory, most_rows=1, public_rows=1).items()
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
    """The parameters by which client number `client` is judged, as a pytree.

    Clients are counted among those that train: client k is number `clients[k]` of the
    partition. Clients held out (`unseen`) have no state to export.
    """
    require_a("client", client, (int, np.integer), A_CLIENT)
    sim, federation, state = load_state(path, federation, task)
    check_client(client, federation.num_clients)
    train = federation.train
    data = ClientData(train.examples, train.offset[client], train.size[client])
    number = jnp.int32(client)
    turn = views.evaluation_turn(sim.setting, state, number, data, federation.public)
    client_state = _client_state(path, sim, state, client)
    took_part = views.has_taken_part(state, jnp.int32(client))
    algorithm = simulation.client_architecture(sim, client).setting.algorithm
    return views.personal_model(
        algorithm, turn, state.server, client_state, data, took_part
    )


def check_client(client: int, num_clients: int) -> None:
    """Raises a ValueError unless there is a client of this number."""
    require_a("client", client, (int, np.integer), A_CLIENT)
    if not 0 <= client < num_clients:
        raise ValueError(
            f"client is {client}; this run has clients 0 to {num_clients - 1}; those "
            "held out (unseen) have no state"
        )


def _client_state(path: str | Path, sim: Any, state: RunState, client: int) -> Any:
    """The state of a client, wherever the run keeps it."""
    population = open_to_read(sim, Path(path), state)
    stacked = population.states(state, np.asarray([client]))
    return jax.tree.map(lambda leaf: leaf[0], stacked)


def server_model(
    path: str | Path, federation: Federation | None = None, task: Task | None = None
) -> Any:
    """The server's one model, or all that the server keeps where it has no model."""
    sim, _, state = load_state(path, federation, task)
    model = sim.setting.algorithm.server_model
    return state.server if model is None else model(state.server)


def export(
    path: Path,
    client: int | None,
    out: Path,
    federation: Federation | None = None,
    task: Task | None = None,
) -> dict[str, np.ndarray]:
    """Writes client `client`'s model, None for the server's, to `out`; its arrays."""
    folder.read_config(path)  # first of all it must be a run
    check_file(out)
    if client is None:
        model = server_model(path, federation, task)
    else:
        model = personal_model(path, client, federation, task)
    arrays = {name: np.asarray(leaf) for name, leaf in tree.paths(model).items()}
    if not arrays:
        raise ValueError(f"the server of {path} keeps nothing; give --client")
    folder.write_arrays(out, arrays)
    return arrays


def check_file(out: Path) -> None:
    """Raises a ValueError unless `out` may be written: a file, and none of a run."""
    if not out.parent.is_dir():
        raise ValueError(
            f"{out.parent} is not a folder; make it, or choose another --out"
        )
    if out.is_dir():
        raise ValueError(f"{out} is a folder; expected a file, such as {out}/model.npz")
    # The file takes the place of what is there: not of /dev/null, say.
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is a pipe or a device; expected a file")
    folder.check_not_own(out)
