"""One client's personal model, or the server's, as an .npz of named arrays."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import build, checkpoint, config, folder, tree
from pfljax.engine import client_key
from pfljax.local import budget, derive
from pfljax.types import ClientData, RunState, Turn


def load_state(path: Path) -> tuple[build.Simulation, Any, RunState]:
    """(simulation, federation, newest state) of a run folder."""
    experiment = folder.read_config(path)
    federation, _ = build.federation(experiment)
    folder.check_data(path, federation.manifest)
    sim = build.simulation(experiment, federation)
    abstract = jax.eval_shape(sim.init, jax.random.key(0))
    digest = config.digest(experiment)
    state = checkpoint.restore(path / "checkpoints", abstract, digest)
    if state is None:
        raise folder.FolderError(f"{path} has no checkpoint yet; run it first")
    return sim, federation, state


def personal_model(path: Path, client: int) -> Any:
    """The parameters by which client number `client` is judged, as a pytree."""
    sim, federation, state = load_state(path)
    if not 0 <= client < federation.num_clients:
        raise ValueError(
            f"client is {client}; this run has clients 0 to "
            f"{federation.num_clients - 1}"
        )
    train = federation.train
    data = ClientData(train.examples, train.offset[client], train.size[client])
    key = jax.random.fold_in(derive(state.key, "evaluation"), state.round)
    key = client_key(key, jnp.int32(client))
    turn = Turn(key, state.round, budget(sim.setting.local, data.size))
    own = tree.take(state.clients, jnp.int32(client))
    return sim.setting.algorithm.personal(turn, state.server, own, data)


def server_model(path: Path) -> Any:
    """The server's one model, or all that the server keeps where it has no model."""
    sim, _, state = load_state(path)
    model = sim.setting.algorithm.server_model
    return state.server if model is None else model(state.server)


def export(path: Path, client: int | None, out: Path) -> dict[str, np.ndarray]:
    """Writes client `client`'s model, None for the server's, to `out`; its arrays."""
    model = server_model(path) if client is None else personal_model(path, client)
    arrays = {name: np.asarray(leaf) for name, leaf in tree.paths(model).items()}
    if not arrays:
        raise ValueError(f"the server of {path} keeps nothing; give --client")
    folder.write_arrays(out, arrays)
    return arrays


def load_params(file: Path) -> dict[str, Any]:
    """The nested dict of arrays that `export` wrote: what the model's `apply` takes."""
    params: dict[str, Any] = {}
    for name, array in folder.read_arrays(file).items():
        *outer, leaf = name.split("/")
        inner = params
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[leaf] = array
    return params
