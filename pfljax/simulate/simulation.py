"""Compiles the functions of an experiment."""

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax

from pfljax import algorithms, engine
from pfljax.channel import Traffic
from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import ClientData, Key, RunState, Task
from pfljax.data import Federation
from pfljax.engine import Setting, asynchronous, mesh, offload_programs
from pfljax.engine.asynchronous import AsyncRounds
from pfljax.engine.state import client_shape, init_stacks
from pfljax.evaluation.dissimilarity import Dissimilarity, dissimilarity
from pfljax.evaluation.passes import rows_per_pass
from pfljax.evaluation.programs import (
    evaluate_in_two,
    evaluate_server,
    predicts_as_task,
    quantities_of_clients,
)
from pfljax.evaluation.views import MIXTURE, SERVER
from pfljax.evaluation.views import views as list_views
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.runtime.programs import Same, memoize
from pfljax.simulate import clocks, model_checks
from pfljax.simulate.architectures import mean_traffic, task_of_server
from pfljax.simulate.components import make_setting, make_task, resolve_width
from pfljax.simulate.first_state import make_init, shapes_of_state
from pfljax.simulate.shape import Shape, make_shape
from pfljax.simulate.step_cost import step_flops
from pfljax.simulate.traced import (
    Bound,
    Kind,
    Numbers,
    make_kind,
    make_lift,
    numbers_of,
)

LONGEST_CALL = 1000  # rounds of one call: the length of the buffer of training metrics


class Architecture(NamedTuple):
    """The evaluation of the clients of one architecture."""

    setting: Setting  # of these clients
    task: Task
    evaluate: dict[str, Callable[..., Any]]  # by view
    quantities: Callable[..., Any] | None  # programs.quantities_of_clients


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
    traced: Collection[str] = (),
) -> Simulation:
    """The compiled functions, which experiments that differ only in the seed share.

    They also share them if they differ in numbers with the names `traced`.
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
    # The method is part of the key: a file that is loaded again has another function.
    method = algorithms.method(key.algorithm.name)
    devices_read = clocks.devices_crc(experiment)
    # Pages of a store, and clients with devices of their own, have other programs.
    if key.state_storage != "device" or key.pin_clients:
        traced = ()
    model = task or make_task(key, shape)
    kind = make_kind(key, traced, model, shape) if traced else Kind(key, (), key)
    sim = _simulation(kind, method, shape, task and Same(task), devices_read)
    if kind.names:
        sim = _bind(sim, key, shape, numbers_of(key, kind.names))
    clocks.check_deadline(sim.setting, federation.train.size)
    tasks = [architecture.task for architecture in sim.architectures]
    model_checks.check_tokens(tasks, federation)
    return sim


def _bind(
    sim: Simulation, experiment: Experiment, shape: Shape, numbers: Numbers
) -> Simulation:
    """The simulation of a kind with the numbers of one of its experiments."""
    setting = make_setting(experiment, sim.task, shape)
    bind = partial(Bound, numbers=numbers)
    stacks = init_stacks(setting, sim.task, shape.num_clients)
    architectures = [
        each._replace(
            setting=setting._replace(algorithm=stack.algorithm, groups=None),
            evaluate={view: bind(f) for view, f in each.evaluate.items()},
            quantities=each.quantities and bind(each.quantities),
        )
        for each, stack in zip(sim.architectures, stacks, strict=True)
    ]
    if isinstance(sim.rounds, AsyncRounds):
        rounds = replace(sim.rounds, program=bind(sim.rounds.program))
    else:
        rounds = bind(sim.rounds)
    return sim._replace(
        setting=setting,
        init=bind(sim.init),
        rounds=rounds,
        architectures=tuple(architectures),
        dissimilarity=sim.dissimilarity and bind(sim.dissimilarity),
    )


@memoize
def _simulation(
    kind: Kind,
    _method: Callable,
    shape: Shape,
    own: Same | None,
    _devices: int | None,
) -> Simulation:
    experiment = kind.example
    task = own.value if own else make_task(experiment, shape)
    if own:
        model_checks.check_task(own, shape.input_shape, shape.num_classes)
    setting = make_setting(experiment, task, shape)
    num_clients = shape.num_clients
    name = experiment.algorithm.name
    model_checks.check_own(name, setting, task, shape)
    model_checks.check_observed(setting, task, shape)
    # Newcomers have only their local training, and are also evaluated after it.
    trained = experiment.eval_after_training or experiment.unseen > 0
    views = list_views(setting.algorithm, trained)
    rounds = experiment.rounds
    longest = min(experiment.eval_every, rounds, LONGEST_CALL)
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
        block=min(_block_size(each.setting, each.task) for each in architectures),
        paging=programs,
        # Traced once, in the first run.
        traffic=functools.cache(partial(mean_traffic, setting, task, shape)),
        step_flops=functools.cache(partial(step_flops, setting, task, shape)),
    )
    return _lift(sim, kind, shape, num_clients) if kind.names else sim


def _lift(sim: Simulation, kind: Kind, shape: Shape, num_clients: int) -> Simulation:
    """The simulation with functions that take the numbers of the kind first."""
    task, longest, experiment = sim.task, sim.longest, kind.example
    lift = make_lift(kind, task, shape)
    views = [*sim.architectures[0].evaluate]
    width = sim.setting.width or experiment.cohort

    def of_clients(setting: Setting, index: int) -> Architecture:
        made = make_architectures(setting, task, num_clients, views, width)
        return made[index]

    architectures = []
    for index, each in enumerate(sim.architectures):
        evaluate = {
            view: lift(lambda s, i=index, v=view: of_clients(s, i).evaluate[v])
            for view in views
        }
        quantities = each.quantities and lift(
            lambda s, i=index: of_clients(s, i).quantities
        )
        each = each._replace(evaluate=evaluate, quantities=quantities)
        architectures.append(each)
    donated = {"donate_argnums": 1}  # the state
    if isinstance(sim.rounds, AsyncRounds):
        program = lift(lambda s: make_rounds(s, longest).program, **donated)
        rounds = replace(sim.rounds, program=program)
    else:
        rounds = lift(lambda s: make_rounds(s, longest), **donated)
    return sim._replace(
        init=lift(lambda s: partial(engine.init, s, task, num_clients)),
        rounds=rounds,
        architectures=tuple(architectures),
        dissimilarity=sim.dissimilarity
        and lift(lambda s: make_dissimilarity(experiment, s, task)),
    )


def make_architectures(
    setting: Setting, task: Task, num_clients: int, views: Sequence[str], width: int
) -> tuple[Architecture, ...]:
    """The compiled evaluations of the clients of each architecture."""
    architectures = []
    for stack in init_stacks(setting, task, num_clients):
        alone = setting._replace(algorithm=stack.algorithm, groups=None)
        architecture = Architecture(
            setting=alone,
            task=stack.task,
            evaluate=_evaluations(alone, stack.task, views, width),
            quantities=quantities_of_clients(alone, width),
        )
        architectures.append(architecture)
    return tuple(architectures)


def _evaluations(
    setting: Setting, task: Task, views: Sequence[str], width: int
) -> dict[str, Callable[..., Any]]:
    """The evaluation of each view, and of the mixture of a method with endpoints."""
    views = [*views, MIXTURE] if setting.algorithm.endpoints else views
    evaluations = {}
    for view in views:
        if view == SERVER:
            of_server = task_of_server(setting.algorithm, task)
            evaluations[view] = evaluate_server(setting, of_server)
        else:
            evaluations[view] = evaluate_in_two(setting, task, view, width)
    return evaluations


def _block_size(setting: Setting, task: Task) -> int:
    """The number of clients in one call, by the memory of a client and its model."""
    algorithm = setting.algorithm
    client = client_shape(algorithm, task)
    if algorithm.personal is None or not predicts_as_task(setting, task):
        return offload_programs.block_size(client)
    model = shapes_of_model(task)
    # Both ends of a path are in memory.
    models = (model, model) if algorithm.endpoints else (model,)
    return offload_programs.block_size((client, *models))


def make_rounds(setting: Setting, longest: int) -> Callable[..., Any]:
    """The program of at most so many rounds, in the mode of the setting."""
    if setting.mode is None:
        return engine.compile_rounds(setting, longest)
    return asynchronous.compile_rounds(setting, longest)


def make_dissimilarity(
    experiment: Experiment, setting: Setting, task: Task
) -> Callable[..., Any] | None:
    """A function that measures how clients' gradients differ; None if not asked for.

    Raises:
      ValueError: the method has no model of the server.
    """
    if not experiment.dissimilarity:
        return None
    server_model = setting.algorithm.server_model
    if server_model is None:
        raise ValueError(
            "dissimilarity is of gradients at the server's model, and "
            f"{experiment.algorithm.name} has none; leave it out, or choose a method "
            "with one, such as fedprox"
        )
    at_once = rows_per_pass(setting.local.batch_size)

    def measure(server: Any, train: ClientData) -> Dissimilarity:
        return dissimilarity(task, server_model(server), train, at_once)

    return jax.jit(measure)


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
