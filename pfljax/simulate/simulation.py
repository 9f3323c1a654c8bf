"""From an `Experiment` to what runs: data and compiled functions."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from pfljax import engine
from pfljax.core import tree
from pfljax.core.precision import EXACT
from pfljax.core.types import ClientData, Key, RunState, Task
from pfljax.data import Federation
from pfljax.engine import Setting, mesh, placement
from pfljax.engine.paging import programs as paging
from pfljax.engine.state import first_clients, first_server
from pfljax.evaluation.programs import judge, judge_path, judge_server
from pfljax.evaluation.views import View, views_of
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.runtime.programs import kept
from pfljax.simulate import given, judged
from pfljax.simulate.components import Shape, make_setting, make_task, shape_of

LONGEST_CALL = 1000  # rounds of one call: the length of the buffer of training metrics


class Simulation(NamedTuple):
    """A method ready to run on any federation of one shape, for any seed."""

    setting: Setting
    task: Task
    init: Callable[[Key], RunState]
    rounds: Callable[..., Any]  # engine.compile_rounds
    longest: int  # rounds of one call of `rounds`
    judges: dict[str, Callable[..., Any]]  # by view
    path: Callable[..., Any] | None  # evaluation.programs.judge_path
    trained: bool  # clients are also judged after their own local training
    block: int  # clients judged in one call
    paging: paging.Programs | None  # of a population in a store


def truthful(
    experiment: Experiment, federation: Federation | None, task: Task | None
) -> Experiment:
    """The experiment with the count of clients, model and precision that are given.

    Raises:
      ValueError: one of them is something else.
    """
    given.check_experiment(experiment)
    given.check_task(task)
    if federation is not None:
        given.check_dealing(experiment, federation)
        experiment = experiment.replace(clients=federation.num_clients)
    if task is None:
        return experiment
    # The default says nothing: what the task computes in is what the run is told of.
    if experiment.method.precision != EXACT:
        given.check_precision(experiment.method.precision, task)
    experiment = experiment.replace(precision=task.precision)
    if experiment.method.model.name == "auto":
        experiment = experiment.replace(model="own")
    return experiment


def simulation(
    experiment: Experiment, federation: Federation, task: Task | None = None
) -> Simulation:
    """The compiled functions; experiments that differ in seed alone share them."""
    shape = shape_of(experiment, federation)
    # The experiment is a key of the cache: what no program depends on is made equal.
    key = experiment.replace(seed=0, out=None, label=None, baseline=None, keep=2)
    usable = experiment.participation.cohort
    # At home, devices that nobody of a cohort lives on hold rows and states as well.
    if experiment.machine.homes:
        usable = federation.num_clients
    key = key.replace(devices=devices.choose(experiment.machine.devices, usable))
    if key.machine.store != "device":
        key = key.replace(store="host")
    return _simulation(key, shape, task and Given(task))


class Given:
    """A task of one's own as part of a key: equal if it is the very same.

    Its functions have no other equality, and those of two models may look the same.
    """

    def __init__(self, task: Task):
        self.task = task

    def __hash__(self) -> int:
        return id(self.task)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and other.task is self.task


@kept
def _simulation(experiment: Experiment, shape: Shape, own: Given | None) -> Simulation:
    task = own.task if own else make_task(experiment, shape)
    setting = make_setting(experiment, task, shape)
    algorithm = setting.algorithm
    num_clients = shape.num_clients
    name = experiment.method.algorithm
    judged.check(name, setting, task, num_clients, shape.input_shape)
    # Newcomers have nothing but a local training, so they are judged after it as well.
    trained = experiment.evaluation.trained or experiment.data.unseen > 0
    views = views_of(algorithm, trained)
    block = setting.width or experiment.participation.cohort  # clients judged at once
    rounds = experiment.participation.rounds
    longest = min(experiment.evaluation.eval_every, rounds, LONGEST_CALL)
    longest, programs = make_paging(experiment, setting, task, num_clients, longest)
    path = judge_path(setting, block) if algorithm.endpoints else None
    return Simulation(
        setting=setting,
        task=task,
        init=make_init(setting, task, num_clients, stored=programs is not None),
        rounds=engine.compile_rounds(setting, longest),
        longest=longest,
        judges={view: make_judge(setting, task, view, block) for view in views},
        path=path,
        trained=experiment.evaluation.trained,
        block=paging.block(paging.client_shape(setting, task)),
        paging=programs,
    )


def make_paging(
    experiment: Experiment, setting: Setting, task: Task, num_clients: int, rounds: int
) -> tuple[int, paging.Programs | None]:
    """(rounds of one call, programs of a store; None where clients need none)."""
    client = paging.client_shape(setting, task)
    if experiment.machine.store == "device" or not tree.nbytes(client):
        return rounds, None
    rounds = paging.longest(setting, client, num_clients, rounds)
    return rounds, paging.programs(setting, task, client, num_clients, rounds)


def make_init(
    setting: Setting, task: Task, num_clients: int, stored: bool = False
) -> Any:
    """A compiled function key -> the first state, where the mesh wants it.

    If `stored`, without the clients: they are made as they are met.
    """
    algorithm = setting.algorithm
    grid = setting.mesh
    rows = mesh.padded(num_clients, grid)
    key: Any = jax.eval_shape(jax.random.key, 0)
    shapes = jax.eval_shape(lambda k: engine.init(setting, task, rows, k), key)
    where = mesh.shardings(grid, shapes)
    # Compiled in parts: within one program XLA fuses across them, and the bits of the
    # server would depend on whether the clients are made with it or met later.
    make_params = paging.make_params(setting, task)
    make_server = jax.jit(
        lambda params, key: first_server(setting, params, num_clients, key),
        out_shardings=where._replace(clients=()),
    )
    make_clients = jax.jit(
        lambda params, key: first_clients(algorithm, grid, params, rows, key),
        out_shardings=where.clients,
    )

    def init(key: Key) -> RunState:
        params = make_params(key)
        state = make_server(params, key)
        if stored:
            return state
        return state._replace(clients=make_clients(params, key))

    return init


def abstract(sim: Simulation) -> RunState:
    """Shapes, dtypes and shardings of the run's state."""
    key = jax.eval_shape(jax.random.key, 0)
    shapes = jax.eval_shape(sim.init, key)
    shardings = mesh.shardings(sim.setting.mesh, shapes)

    def place(leaf: Any, sharding: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, shapes, shardings)


def placed(sim: Simulation, federation: Federation) -> Federation:
    """The federation with its data on every device that takes part, or at home."""
    grid = sim.setting.mesh
    if federation.public is not None:
        # Every device has all rows of the server, at home or not.
        public = mesh.place(grid, federation.public)
        federation = dataclasses.replace(federation, public=public)
    if grid is not None and grid.homes:
        parts = placement.place(grid, federation.parts)
        return dataclasses.replace(federation, **parts)
    # Train, validation and test share one pool of rows, which is placed once.
    spans = {name: (part.offset, part.size) for name, part in federation.parts.items()}
    pool, spans = mesh.place(grid, (federation.train.examples, spans))
    parts = {name: ClientData(pool, *span) for name, span in spans.items()}
    return dataclasses.replace(federation, **parts)


def choices(sim: Simulation) -> str:
    """One line: what was chosen for this machine."""
    grid = sim.setting.mesh
    kind = jax.devices()[0].device_kind
    width = sim.setting.width or sim.setting.selection.cohort
    at_once = "one client" if width == 1 else f"{width} clients"
    devices = "1 device"
    if grid is not None and grid.size > 1:
        devices = f"{grid.size} devices"
    if jax.process_count() > 1:
        devices += f" of {jax.process_count()} processes"
    homes = ""
    if grid is not None and grid.homes:
        homes = ", of those at home on it"
    return f"{devices} ({kind}), each {at_once} at a time{homes}"


def make_judge(setting: Setting, task: Task, view: str, block: int) -> Any:
    """The compiled evaluation of this view; `block` clients are judged at once."""
    if view == "server":
        return judge_server(setting, task)
    return judge(setting, View(view), block)
