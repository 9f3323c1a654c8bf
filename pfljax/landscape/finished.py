"""The models of a finished run, read from its checkpoints."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pfljax.core.communication import shapes_of_model
from pfljax.core.types import ClientData, Params, RunState, Task
from pfljax.data import Federation
from pfljax.engine import chunked_vmap
from pfljax.engine.contract import first_change
from pfljax.engine.state import split_ids
from pfljax.evaluation import views
from pfljax.runs import checkpoint, config
from pfljax.runs.folder import FolderError, read_config
from pfljax.runs.settings import label
from pfljax.simulate.components import make_network
from pfljax.simulate.export import load_state
from pfljax.simulate.population import open_to_read
from pfljax.simulate.shape import make_shape
from pfljax.simulate.simulation import Architecture, Simulation, abstract


class History(NamedTuple):
    """The server's model at the rounds whose checkpoints were kept."""

    rounds: list[int]  # ascending
    models: Params  # stacked [R, ...]


class Finished:
    """A finished run: its data, its task, and the models that it ended with.

    Attributes:
      path: the run folder.
      experiment: its settings.
      label: its name in figures and tables.
      sim, federation, state: as `export.load_state` reads them.
      ids: the numbers of the clients, i[C].
      architecture: their model and its evaluation; the first of several.
      network: the layers of the model; None if the task was given in Python.
    """

    def __init__(
        self,
        path: str | Path,
        federation: Federation | None = None,
        task: Task | None = None,
    ):
        """Reads a run; `federation` and `task` are those given to it in Python.

        Raises:
          FolderError, ValueError: `path` is no finished run.
        """
        self.path = Path(path)
        self.experiment = read_config(self.path)
        if not (self.path / "summary.json").is_file():
            raise FolderError(f"{path} is unfinished; finish it with `pfljax resume`")
        self.label = label(self.experiment)
        loaded = load_state(path, federation, task)
        self.sim: Simulation = loaded[0]
        self.federation: Federation = loaded[1]
        self.state: RunState = loaded[2]
        self.ids = np.arange(self.federation.num_clients)
        self.architecture: Architecture = self.sim.architectures[0]
        # A task that was given in Python has no name by which to build its layers.
        self.network: nn.Module | None = None
        if task is None:
            self.network = self._network(0)

    def _network(self, number: int) -> nn.Module:
        """The layers of the architecture of this number."""
        shape = make_shape(self.experiment, self.federation)
        return make_network(self.experiment, shape, number)

    def architectures(self) -> list["Finished"]:
        """The run with the clients of each architecture alone; itself if all have one.

        Models of two architectures lie in different spaces.
        """
        if len(self.sim.architectures) == 1:
            return [self]
        parts = []
        for number, ids in enumerate(split_ids(self.sim.setting, self.ids)):
            part = copy.copy(self)
            part.ids = ids
            part.federation = self.federation.take(ids)
            part.architecture = self.sim.architectures[number]
            part.network = self._network(number)
            parts.append(part)
        return parts

    @property
    def task(self) -> Task:
        """The model."""
        return self.architecture.task

    @property
    def batch_size(self) -> int:
        """Examples of a local step, and of a batchwise calibration error."""
        return self.sim.setting.local.batch_size

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.experiment.algorithm.name

    @property
    def about(self) -> str:
        """The method and the round."""
        return f"{self.method}, round {int(self.state.round)}"

    def server(self) -> Params:
        """The server's one model.

        Raises:
          ValueError: the method has none.
        """
        return self._server_model(self.state)

    def _server_model(self, state: RunState) -> Params:
        model = self.sim.setting.algorithm.server_model
        if model is None:
            raise ValueError(
                f"{self.path} is a run of {self.method!r}, whose server has no model; "
                "choose a run of a method that has one"
            )
        return model(state.server)

    def models(self, view: str = "personal") -> Params:
        """The models of all C clients, stacked [C, ...].

        "personal": those that the clients use. "trained": after one more local training
        from the newest broadcast, without averaging. If a client uses more than a
        model, such as a model and prototypes, this is its model.

        Raises:
          ValueError: they have several architectures, or clients use another model than
            that of the run.
        """
        model_of = views.client_model(self.architecture.setting, view)
        train = self.federation.train
        ids = jnp.asarray(self.ids)
        width = self.sim.setting.width

        @jax.jit
        def make_models(
            state: RunState, clients: Any, train: ClientData, public: Any
        ) -> Params:
            def make_model(k: Any, client: Any, offset: Any, size: Any) -> Params:
                client_data = ClientData(train.examples, offset, size)
                return self._find_model(model_of(state, k, client, client_data, public))

            arguments = (ids, clients, train.offset, train.size)
            return chunked_vmap.over_clients(make_model, arguments, train.size, width)

        # The clients are a separate argument: they may lie outside of the state.
        server_state = self.state._replace(clients=())
        public = self.federation.public
        return make_models(server_state, self._clients(), train, public)

    def _find_model(self, parts: Any) -> Params:
        """The first part of a client's model that has the form of the task's model."""
        model = shapes_of_model(self.task)

        def is_model(part: Any) -> bool:
            return first_change(model, part) is None

        for part in jax.tree.leaves(parts, is_leaf=is_model):
            if is_model(part):
                return part
        raise ValueError(
            f"{self.path} is a run of {self.method!r}, whose clients use another model "
            "than that of the run; choose a run of another method, or other options"
        )

    def endpoints(self) -> tuple[Params, Params]:
        """The two models that each client mixes, each stacked [C, ...].

        Raises:
          ValueError: the method mixes no two models, or clients have several
            architectures.
        """
        endpoints = self.architecture.setting.algorithm.endpoints
        if endpoints is None:
            raise ValueError(
                f"{self.path} is a run of {self.method!r}, which has no endpoints; "
                "choose a run of a method that mixes two models, such as superfed, or "
                "lines to another run (other)"
            )
        make_endpoints = jax.jit(jax.vmap(endpoints, (None, 0)))
        return make_endpoints(self.state.server, self._clients())

    def _clients(self) -> Any:
        """The states of all clients, stacked, wherever the run keeps them.

        Raises:
          ValueError: they have several architectures.
        """
        members = split_ids(self.sim.setting, self.ids)
        if sum(len(ids) > 0 for ids in members) > 1:
            raise ValueError(
                f"{self.path} has clients of several architectures, whose models lie "
                "in different spaces; take those of one: "
                "Finished(path).architectures()"
            )
        population = open_to_read(self.sim, self.path, self.state)
        stacked = population.states(self.state, self.ids)
        return jax.tree.map(lambda leaf: leaf[: len(self.ids)], stacked)

    def history(self) -> History:
        """The server's model at every round with a checkpoint (see `keep_checkpoints`).

        Raises:
          ValueError: the method's server has no model.
          FolderError: fewer than three checkpoints were kept.
        """
        folder = self.path / "checkpoints"
        rounds = checkpoint.saved_rounds(folder)
        if len(rounds) < 3:
            raise FolderError(
                f"{self.path} keeps too few checkpoints ({len(rounds)}), expected 3 "
                "or more; run it with, for example, --keep-checkpoints 100 and a small "
                "--eval-every, as each evaluation saves one"
            )
        template = abstract(self.sim)
        digest = config.digest(self.experiment)
        # One checkpoint at a time: only the server's model of each is kept.
        models = []
        for round_ in rounds:
            state = checkpoint.load(folder, round_, template, digest).state
            models.append(jax.device_get(self._server_model(state)))
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
        return History(rounds=rounds, models=stacked)


def collect(run: Finished, evaluate: Callable[[Finished], Any]) -> Any:
    """`evaluate` of the clients of each architecture, joined to leaves [C, ...]."""
    parts = run.architectures()
    order = np.argsort(np.concatenate([part.ids for part in parts]))
    return jax.tree.map(
        lambda *leaves: np.concatenate(leaves)[order],
        *[evaluate(part) for part in parts],
    )
