"""The models of a finished run, read from its checkpoints."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pfljax.core import tree
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
from pfljax.simulate.simulation import Architecture, abstract


class Finished:
    """A finished run: its data, its task, and the models that it ended with.

    Attributes:
      path: the run folder.
      given: the federation and the task that were given in Python, or None.
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
          FolderError, ValueError: `path` is no finished run, or its task is no classes.
        """
        self.path = Path(path)
        self.given = (federation, task)
        self.experiment = read_config(self.path)
        if not (self.path / "summary.json").is_file():
            raise FolderError(f"{path} is unfinished; finish it with `pfljax resume`")
        self.label = label(self.experiment)
        self.sim, self.federation, self.state = load_state(path, federation, task)
        self.ids = np.arange(self.federation.num_clients)
        if self.federation.kind != "classes":
            raise ValueError(
                f"{path} is a run of the task {self.federation.kind!r}; landscapes are "
                "of the cross-entropy: choose a run of classes"
            )
        # By architecture and name: the blocks of a run share them.
        self.programs: dict[tuple[int, str], Callable[..., Any]] = {}
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
            if len(ids):
                part = self.take(ids)
                part.architecture = self.sim.architectures[number]
                part.network = self._network(number)
                parts.append(part)
        return parts

    def take(self, ids: np.ndarray) -> "Finished":
        """The run with these of its clients, whose numbers ascend, alone."""
        part = copy.copy(self)
        part.ids = ids
        part.federation = self.federation.take(np.searchsorted(self.ids, ids))
        return part

    def blocks(self, size: int) -> list["Finished"]:
        """The clients in blocks of at most `size`, each of one architecture."""
        return [
            part.take(ids)
            for part in self.architectures()
            for ids in np.array_split(part.ids, -(-len(part.ids) // size))
        ]

    def at(self, round_: int) -> "Finished":
        """The run as it was at a round whose checkpoint it keeps."""
        past = copy.copy(self)
        digest = config.digest(self.experiment)
        folder = self.path / "checkpoints"
        past.state = checkpoint.load(folder, round_, abstract(self.sim), digest).state
        return past

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
        return self.experiment.algorithm.short_name

    @property
    def about(self) -> str:
        """The method and the round."""
        return f"{self.method}, round {int(self.state.round)}"

    def server(self) -> Params:
        """The server's one model.

        Raises:
          ValueError: the method has none.
        """
        model = self.sim.setting.algorithm.server_model
        if model is None:
            raise ValueError(
                f"{self.path} is a run of {self.method!r}, whose server has no model; "
                "choose a run of a method that has one, or what needs none: pairs, "
                "curvature, a line to another run (other), or a plane or curve through "
                "client:0 client:1"
            )
        return model(self.state.server)

    def model(self, name: str) -> Params:
        """The model "server", or "client:3", the personal model of client number 3.

        Raises:
          ValueError: the name is another one.
        """
        if name == "server":
            return self.server()
        ids = find_clients([name], len(self.ids))
        (part,) = self.take(np.asarray(ids)).architectures()
        return tree.first(part.models())

    def models(self, view: str = "personal") -> Params:
        """The models of all C clients, stacked [C, ...].

        "personal": those that the clients use. "trained": after one more local training
        from the newest broadcast, without averaging. If a client uses more than a
        model, such as a model and prototypes, this is its model.

        Raises:
          ValueError: they have several architectures, or clients use another model than
            that of the run.
        """
        make_models = self._program(view, lambda: self._compile(view))
        # The clients are a separate argument: they may lie outside of the state.
        state = self.state._replace(clients=())
        ids = jnp.asarray(self.ids)
        train = self.federation.train
        public = self.federation.public
        return make_models(state, ids, self._clients(), train, public)

    def _program(
        self, name: str, build: Callable[[], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """The program of this name for the architecture, built at its first use."""
        key = (id(self.architecture), name)
        if key not in self.programs:
            self.programs[key] = build()
        return self.programs[key]

    def _compile(self, view: str) -> Callable[..., Params]:
        """The program of `models`, which takes any number of clients."""
        model_of = views.client_model(self.architecture.setting, view)
        width = self.sim.setting.width

        @jax.jit
        def make_models(
            state: RunState, ids: Any, clients: Any, train: ClientData, public: Any
        ) -> Params:
            def make_model(k: Any, client: Any, offset: Any, size: Any) -> Params:
                client_data = ClientData(train.examples, offset, size)
                return self._find_model(model_of(state, k, client, client_data, public))

            arguments = (ids, clients, train.offset, train.size)
            return chunked_vmap.over_clients(make_model, arguments, train.size, width)

        return make_models

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
        vmapped = jax.vmap(endpoints, (None, 0))
        make_endpoints = self._program("endpoints", lambda: jax.jit(vmapped))
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

    def history(self) -> tuple[list[int], Params]:
        """The `rounds` R, ascending, and the server's model at each, stacked [R, ...].

        Raises:
          ValueError: the method's server has no model.
          FolderError: fewer than three checkpoints were kept.
        """
        rounds = self.rounds()
        # One checkpoint at a time: only the server's model of each is kept.
        models = [jax.device_get(self.at(round_).server()) for round_ in rounds]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
        return rounds, stacked

    def rounds(self) -> list[int]:
        """The rounds whose checkpoints were kept (see `keep_checkpoints`).

        Raises:
          FolderError: they are fewer than three.
        """
        rounds = checkpoint.saved_rounds(self.path / "checkpoints")
        if len(rounds) < 3:
            raise FolderError(
                f"{self.path} keeps too few checkpoints ({len(rounds)}), expected 3 "
                "or more; run it with, for example, --keep-checkpoints 100 and a small "
                "--eval-every, as each evaluation saves one"
            )
        return rounds


def find_clients(names: Sequence[str], count: int) -> list[int]:
    """The numbers of the clients in names such as "client:3"; others name no client.

    Raises:
      ValueError: a name is neither that of one of `count` clients nor "server".
    """
    numbers = []
    for name in names:
        head, _, number = name.partition(":")
        if head == "client" and number.isdecimal() and int(number) < count:
            numbers.append(int(number))
        elif name != "server":
            raise ValueError(
                f"through has {name!r}; expected server, or client:K with K from 0 to "
                f"{count - 1}"
            )
    return numbers
