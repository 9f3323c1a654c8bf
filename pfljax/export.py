"""One client's personal model, or the server's, as an .npz of named arrays."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import build, checkpoint, config, evaluate, folder, tree
from pfljax.data import Federation
from pfljax.types import ClientData, RunState


def load_state(
    path: str | Path, given: Federation | None = None
) -> tuple[build.Simulation, Federation, RunState]:
    """(simulation, federation, newest state) of a run folder, which is left as it is.

    `given` is the federation of a run that was given one in Python.
    """
    path = Path(path)
    experiment = folder.read_config(path)
    federation, _ = build.federation(experiment, given)
    folder.check_data(path, federation.manifest)
    sim = build.simulation(experiment, federation)
    abstract = jax.eval_shape(sim.init, jax.random.key(0))
    digest, place = config.digest(experiment), path / "checkpoints"
    state = checkpoint.restore(place, abstract, digest, _say, repair=False)
    if state is None:
        raise folder.FolderError(f"{path} has no checkpoint yet; run it first")
    return sim, federation, state


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def personal_model(
    path: str | Path, client: int, given: Federation | None = None
) -> Any:
    """The parameters by which client number `client` is judged, as a pytree."""
    sim, federation, state = load_state(path, given)
    if not 0 <= client < federation.num_clients:
        raise ValueError(
            f"client is {client}; this run has clients 0 to "
            f"{federation.num_clients - 1}"
        )
    train = federation.train
    data = ClientData(train.examples, train.offset[client], train.size[client])
    turn = evaluate.turn_of(sim.setting, state, jnp.int32(client), data)
    own = tree.take(state.clients, jnp.int32(client))
    return sim.setting.algorithm.personal(turn, state.server, own, data)


def server_model(path: str | Path, given: Federation | None = None) -> Any:
    """The server's one model, or all that the server keeps where it has no model."""
    sim, _, state = load_state(path, given)
    model = sim.setting.algorithm.server_model
    return state.server if model is None else model(state.server)


def export(
    path: Path, client: int | None, out: Path, given: Federation | None = None
) -> dict[str, np.ndarray]:
    """Writes client `client`'s model, None for the server's, to `out`; its arrays."""
    if not out.parent.is_dir():
        raise ValueError(
            f"{out.parent} is not a folder; make it, or choose another --out"
        )
    if client is None:
        model = server_model(path, given)
    else:
        model = personal_model(path, client, given)
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
