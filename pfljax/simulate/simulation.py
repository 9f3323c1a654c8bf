"""Compiles the functions of an experiment."""

import functools
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import jax

from pfljax.channel import Traffic
from pfljax.core import tree
from pfljax.core.types import Key, RunState, Task
from pfljax.data import Federation
from pfljax.engine import Setting, mesh, offload_programs
from pfljax.engine.state import client_shape, init_stacks
from pfljax.evaluation.views import views as list_views
from pfljax.runs import components
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.runtime.programs import Same, memoize
from pfljax.simulate import clocks, model_checks, target_checks, traced
from pfljax.simulate.architectures import mean_traffic
from pfljax.simulate.components import make_setting, make_task, resolve_width
from pfljax.simulate.first_model import Initial, freezes, prepare
from pfljax.simulate.first_state import make_init, shapes_of_state
from pfljax.simulate.program_parts import (
    Architecture,
    block_size,
    make_architectures,
    make_dissimilarity,
    make_rounds,
)
from pfljax.simulate.shape import Shape, make_shape
from pfljax.simulate.step_cost import step_flops
from pfljax.simulate.traced import Kind

LONGEST_CALL = 1000  # rounds of one call: the length of the buffer of training metrics


class Simulation(NamedTuple):
    """The compiled functions of a method, for federations of one shape and any seed."""

    setting: Setting
    task: Task
    init: Callable[[Key], RunState]
    shapes: RunState  # of what `init` makes
    rounds: Callable[..., Any]  # engine.compile_rounds
    longest: int  # rounds of one call of `rounds`
    architectures: tuple[Architecture, ...]  # one, or one a group of clients
    views: list[str]  # the models that are evaluated after a round
    trained: bool  # clients that train are also evaluated after local training
    ood: int  # examples by which detection of other classes is evaluated
    # (server, training examples) -> Dissimilarity
    dissimilarity: Callable[..., Any] | None
    block: int  # clients evaluated in one call
    paging: offload_programs.Programs | None  # of a population in a store
    traffic: Callable[[], Traffic]  # of a client's exchange in a round
    step_flops: Callable[[], float | None]  # of one local step of the method


def client_architecture(sim: Simulation, client: int) -> Architecture:
    """The architecture of a client."""
    groups = sim.setting.groups
    return sim.architectures[0 if groups is None else int(groups.of(client))]


def simulation(
    experiment: Experiment,
    federation: Federation,
    task: Task | None = None,
    names: Collection[str] = (),
    initial: Initial | None = None,
) -> Simulation:
    """The compiled functions, which experiments that differ only in the seed share.

    They also share them if they differ only in numbers of these `names`.
    """
    shape = make_shape(experiment, federation)
    # The experiment is the key of a cache: settings that no program needs are removed.
    key = experiment.replace(seed=0, out=None, label=None)
    key = key.replace(keep_checkpoints=2, width=resolve_width(experiment))
    usable = experiment.cohort
    # With pinned clients, devices without a client of the cohort hold data as well.
    if experiment.pin_clients:
        usable = federation.num_clients
    if experiment.mode.name != "sync":
        usable = 1  # versions come one after another
    key = key.replace(devices=devices.choose(experiment.devices, usable))
    if key.state_storage != "device":
        key = key.replace(state_storage="host")
    model = task or make_task(key, shape)
    if freezes(key, model):
        key = key.replace(seed=experiment.seed)
    # One's own functions are part of the key: a notebook may define one again.
    own = tuple(components.list_own(key).values())
    devices_read = clocks.devices_crc(experiment)
    # Pages of a store, and clients with devices of their own, have other programs.
    if key.state_storage != "device" or key.pin_clients:
        names = ()
    kind = Kind(key, (), key)
    if names:
        kind = traced.make_kind(key, names, model, shape)
    sim = _simulation(kind, own, shape, task and Same(task), devices_read, initial)
    if kind.names:
        sim = traced.bind(sim, key, shape, traced.numbers_of(key, kind.names))
    clocks.check_deadline(sim.setting, federation.train.size)
    tasks = [architecture.task for architecture in sim.architectures]
    model_checks.check_tokens(tasks, federation)
    return sim


@memoize
def _simulation(
    kind: Kind,
    _own: tuple[Callable, ...],
    shape: Shape,
    own: Same | None,
    _devices: int | None,
    initial: Initial | None,
) -> Simulation:
    experiment = kind.example
    task = own.value if own else make_task(experiment, shape)
    if own:
        model_checks.check_task(own, shape.input_shape, shape.num_classes, shape.kind)
    target_checks.check(experiment, task, shape)
    task = prepare(experiment, task, initial)
    setting, num_clients = make_setting(experiment, task, shape), shape.num_clients
    model_checks.check_own(experiment.algorithm.name, setting, task, shape)
    model_checks.check_observed(setting, task, shape)
    # Newcomers have only their local training, and are also evaluated after it.
    trained = experiment.eval_after_training or bool(experiment.unseen)
    views = list_views(setting.algorithm, trained)
    longest = min(experiment.eval_every, experiment.rounds, LONGEST_CALL)
    longest, programs = make_paging(experiment, setting, task, num_clients, longest)
    width = setting.width or experiment.cohort  # clients evaluated at once
    architectures = make_architectures(setting, task, num_clients, views, width)
    shapes = shapes_of_state(setting, task, num_clients)
    stored = programs is not None
    sim = Simulation(
        setting=setting,
        task=task,
        init=make_init(setting, task, num_clients, stored),
        shapes=shapes._replace(clients=()) if stored else shapes,
        rounds=make_rounds(setting, longest),
        longest=longest,
        architectures=architectures,
        views=views,
        trained=experiment.eval_after_training,
        ood=experiment.ood_examples,
        dissimilarity=make_dissimilarity(experiment, setting, task),
        block=min(block_size(each.setting, each.task) for each in architectures),
        paging=programs,
        # Traced once, in the first run.
        traffic=functools.cache(partial(mean_traffic, setting, task, shape)),
        step_flops=functools.cache(partial(step_flops, setting, task, shape)),
    )
    return traced.lift(sim, kind, shape, num_clients) if kind.names else sim


def make_paging(
    experiment: Experiment, setting: Setting, task: Task, num_clients: int, rounds: int
) -> tuple[int, offload_programs.Programs | None]:
    """(rounds of one call, the programs of a store or None)."""
    stacks = init_stacks(setting, task, num_clients)
    clients = [client_shape(each.algorithm, each.task) for each in stacks]
    if experiment.state_storage == "device" or not tree.nbytes(clients):
        return rounds, None
    rounds = offload_programs.longest_call(setting, task, num_clients, rounds)
    return rounds, offload_programs.compile_programs(setting, task, num_clients, rounds)


def abstract(sim: Simulation) -> RunState:
    """Shapes, dtypes and shardings of the run's state."""
    shardings = mesh.shardings(sim.setting.mesh, sim.shapes)

    def place(leaf: Any, sharding: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, sim.shapes, shardings)


def describe(sim: Simulation) -> str:
    """A line about the devices and the width of the run."""
    grid = sim.setting.mesh
    kind = jax.devices()[0].device_kind
    width = sim.setting.width or sim.setting.selection.cohort
    at_once = "one client" if width == 1 else f"{width} clients"
    devices = "1 device"
    if grid is not None and grid.size > 1:
        devices = f"{grid.size} devices"
    if jax.process_count() > 1:
        devices += f" of {jax.process_count()} processes"
    pinned = ""
    if grid is not None and grid.pin_clients:
        pinned = ", of the clients pinned to it"
    return f"{devices} ({kind}), each {at_once} at a time{pinned}"
