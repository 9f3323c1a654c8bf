"""From an `Experiment` to what runs: data and compiled functions."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax import algorithms, engine
from pfljax.channel import Traffic
from pfljax.core import tree
from pfljax.core.types import ClientData, Key, RunState, Task
from pfljax.data import Federation
from pfljax.engine import Setting, asynchronous, mesh, placement
from pfljax.engine.paging import programs as paging
from pfljax.engine.state import stacks_of
from pfljax.evaluation.dissimilarity import Dissimilarity, dissimilarity
from pfljax.evaluation.passes import rows_per_pass
from pfljax.evaluation.quantities import quantities_of_clients
from pfljax.evaluation.views import views_of
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.runtime.programs import Same, kept
from pfljax.simulate import clocks, detection, model_checks, rho
from pfljax.simulate.architectures import traffic
from pfljax.simulate.components import Shape, make_setting, make_task, shape_of
from pfljax.simulate.first_state import make_init, shapes_of_state
from pfljax.simulate.judges import block_judged, make_judge, make_path
from pfljax.simulate.step_cost import client_step

LONGEST_CALL = 1000  # rounds of one call: the length of the buffer of training metrics


class Architecture(NamedTuple):
    """How the clients of one architecture are judged."""

    setting: Setting  # of theirs alone
    task: Task
    judges: dict[str, Callable[..., Any]]  # by view
    path: Callable[..., Any] | None  # evaluation.programs.judge_path
    quantities: Callable[..., Any] | None  # evaluation.quantities_of_clients


class Simulation(NamedTuple):
    """A method ready to run on any federation of one shape, for any seed."""

    setting: Setting
    task: Task
    init: Callable[[Key], RunState]
    shapes: RunState  # of what `init` makes
    rounds: Callable[..., Any]  # engine.compile_rounds
    longest: int  # rounds of one call of `rounds`
    architectures: tuple[Architecture, ...]  # one, or one a group of clients
    trained: bool  # clients are also judged after their own local training
    foreign: int  # rows by which detection of other classes is judged
    dissimilarity: Callable[..., Any] | None  # (server, train rows) -> Dissimilarity
    block: int  # clients judged in one call
    paging: paging.Programs | None  # of a population in a store
    traffic: Callable[[], Traffic]  # of a client's exchange in a round
    step_flops: Callable[[Any], dict[str, float | None]]  # of a row's shape and dtype


def architecture_of(sim: Simulation, client: int) -> Architecture:
    """The architecture of a client."""
    groups = sim.setting.groups
    return sim.architectures[0 if groups is None else int(groups.of(client))]


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
    if experiment.participation.mode.name != "sync":
        usable = 1  # versions come one after another
    key = key.replace(devices=devices.choose(experiment.machine.devices, usable))
    if key.machine.store != "device":
        key = key.replace(store="host")
    # As well: a file that is loaded again has another function of the same name.
    method = algorithms.method(key.method.algorithm)
    devices_read = clocks.devices_crc(experiment)
    sim = _simulation(key, method, shape, task and Same(task), devices_read)
    clocks.check_deadline(sim.setting, federation.train.size)
    return sim


@kept
def _simulation(
    experiment: Experiment,
    _method: Callable,
    shape: Shape,
    own: Same | None,
    _devices: int | None,
) -> Simulation:
    task = own.value if own else make_task(experiment, shape)
    setting = make_setting(experiment, task, shape)
    num_clients = shape.num_clients
    name = experiment.method.algorithm
    model_checks.check(name, setting, task, num_clients, shape.input_shape)
    model_checks.check_observed(setting, task, num_clients, shape.input_shape)
    # Newcomers have nothing but a local training, so they are judged after it as well.
    trained = experiment.evaluation.trained or experiment.data.unseen > 0
    views = views_of(setting.algorithm, trained)
    block = setting.width or experiment.participation.cohort  # clients judged at once
    rounds = experiment.participation.rounds
    longest = min(experiment.evaluation.eval_every, rounds, LONGEST_CALL)
    longest, programs = make_paging(experiment, setting, task, num_clients, longest)
    architectures = make_architectures(setting, task, num_clients, views, block)
    shapes = shapes_of_state(setting, task, num_clients)
    stored = programs is not None
    return Simulation(
        setting=setting,
        task=task,
        init=make_init(setting, task, num_clients, stored),
        shapes=shapes._replace(clients=()) if stored else shapes,
        rounds=make_rounds(setting, longest),
        longest=longest,
        architectures=architectures,
        trained=experiment.evaluation.trained,
        foreign=experiment.evaluation.foreign,
        dissimilarity=make_dissimilarity(experiment, setting, task, shape),
        block=min(block_judged(each.setting, each.task) for each in architectures),
        paging=programs,
        # Traced once, by the first run.
        traffic=functools.cache(
            partial(traffic, setting, task, num_clients, shape.input_shape)
        ),
        # As well, when it ends.
        step_flops=functools.cache(partial(client_step, setting, task, num_clients)),
    )


def make_architectures(
    setting: Setting, task: Task, num_clients: int, views: Sequence[str], block: int
) -> tuple[Architecture, ...]:
    """What judges the clients of each architecture."""
    architectures = []
    for stack in stacks_of(setting, task, num_clients):
        alone = setting._replace(algorithm=stack.algorithm, groups=None)
        architectures.append(make_architecture(alone, stack.task, views, block))
    return tuple(architectures)


def make_rounds(setting: Setting, longest: int) -> Callable[..., Any]:
    """The program of at most so many rounds, in the mode of the setting."""
    if setting.mode is None:
        return engine.compile_rounds(setting, longest)
    return asynchronous.compile_rounds(setting, longest)


def make_architecture(
    setting: Setting, task: Task, views: Sequence[str], block: int
) -> Architecture:
    """The compiled evaluations of clients with this model."""
    has_path = setting.algorithm.endpoints is not None
    return Architecture(
        setting=setting,
        task=task,
        judges={view: make_judge(setting, task, view, block) for view in views},
        path=make_path(setting, task, block) if has_path else None,
        quantities=quantities_of_clients(setting, block),
    )


def make_dissimilarity(
    experiment: Experiment, setting: Setting, task: Task, shape: Shape
) -> Callable[..., Any] | None:
    """What measures how clients' gradients differ; None where no run asks for it.

    Raises:
      ValueError: the method has no model of the server, or no rho that is asked for.
    """
    if not experiment.evaluation.dissimilarity:
        return None
    server_model = setting.algorithm.server_model
    if server_model is None:
        raise ValueError(
            "dissimilarity is of gradients at the server's model, and "
            f"{experiment.method.algorithm} has none; leave it out, or choose a method "
            "with one, such as fedprox"
        )
    rho.check(experiment, setting, task, shape.num_clients, shape.input_shape)
    at_once = rows_per_pass(setting.local.batch_size)

    def measured(server: Any, train: ClientData) -> Dissimilarity:
        return dissimilarity(task, server_model(server), train, at_once)

    return jax.jit(measured)


def make_paging(
    experiment: Experiment, setting: Setting, task: Task, num_clients: int, rounds: int
) -> tuple[int, paging.Programs | None]:
    """(rounds of one call, programs of a store; None where clients need none)."""
    stacks = stacks_of(setting, task, num_clients)
    clients = [paging.client_shape(each.algorithm, each.task) for each in stacks]
    if experiment.machine.store == "device" or not tree.nbytes(clients):
        return rounds, None
    rounds = paging.longest(setting, task, num_clients, rounds)
    return rounds, paging.programs(setting, task, num_clients, rounds)


def abstract(sim: Simulation) -> RunState:
    """Shapes, dtypes and shardings of the run's state."""
    shardings = mesh.shardings(sim.setting.mesh, sim.shapes)

    def place(leaf: Any, sharding: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, sim.shapes, shardings)


def placed(sim: Simulation, federation: Federation, first: int = 0) -> Federation:
    """The federation with its data on every device that takes part, or at home.

    `first` is the number of its first client.
    """
    grid = sim.setting.mesh
    if sim.foreign:
        # Chosen on the host, before rows lie with their clients alone.
        foreign = detection.foreign(grid, federation, sim.foreign)
        federation = dataclasses.replace(federation, foreign=foreign)
    if federation.public is not None:
        # Every device has all rows of the server, at home or not.
        public = mesh.place(grid, federation.public)
        federation = dataclasses.replace(federation, public=public)
    if grid is not None and grid.homes:
        home = homes(sim, federation.num_clients, first)
        parts = placement.place(grid, federation.parts, home)
        return dataclasses.replace(federation, **parts)
    # Train, validation and test share one pool of rows, which is placed once.
    spans = {name: (part.offset, part.size) for name, part in federation.parts.items()}
    pool, spans = mesh.place(grid, (federation.train.examples, spans))
    parts = {name: ClientData(pool, *span) for name, span in spans.items()}
    return dataclasses.replace(federation, **parts)


def homes(sim: Simulation, count: int, first: int = 0) -> np.ndarray:
    """The devices of so many clients at home, from number `first` on, i64[count]."""
    grid = sim.setting.mesh
    assert grid is not None
    groups = sim.setting.groups
    stack = np.zeros(count, np.int64)
    if groups is not None:
        stack = groups.of(first + np.arange(count))
    return placement.homes(grid.size, stack)


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
