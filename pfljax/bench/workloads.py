"""A workload made ready to run: task, setting and data. Rows are random numbers."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import algorithms, registry
from pfljax.bench.catalogue import WORKLOADS, Workload
from pfljax.bench.power_law import power_law
from pfljax.core.types import (
    Algorithm,
    ClientData,
    Examples,
    Key,
    Local,
    RunState,
    Task,
)
from pfljax.engine import Setting, mesh, placement
from pfljax.engine.setting import Groups
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.selection import uniform
from pfljax.simulate import architectures, components
from pfljax.simulate.first_state import make_init

SEED = 12345


class Ready(NamedTuple):
    """A workload under one method, with its data."""

    name: str
    method: str
    workload: Workload
    task: Task  # of the first architecture, where there are several
    setting: Setting
    train: ClientData
    test: ClientData | None  # offset, size i32[1]: the central test set

    def init(self, key: Key) -> RunState:
        """The state before the first round."""
        count = self.workload.clients
        return make_init(self.setting, self.task, count)(key)


def build(name: str, method: str, scale: float = 1.0) -> Ready:
    """The workload `name` under `method`, "name" or "name:key=value".

    `scale` < 1 shrinks clients, cohort and rows, for tests.
    """
    workload = shrink(registry.find("workload", WORKLOADS, name), scale)
    return prepare(name, workload, method)


def prepare(name: str, workload: Workload, method: str) -> Ready:
    """A workload of this name under `method`."""
    task = make_task(workload)
    setting = make_setting(workload, task, method)
    train, test = make_data(workload)
    return Ready(
        name=name,
        method=method,
        workload=workload,
        task=task,
        setting=setting,
        train=place(setting, train),
        test=mesh.place(setting.mesh, test),
    )


def place(setting: Setting, train: ClientData) -> ClientData:
    """The rows on every device, or each client's on the device that has its state."""
    grid = setting.mesh
    if grid is None or not grid.homes:
        return mesh.place(grid, train)
    clients = np.arange(len(train.size))
    stack = setting.groups.of(clients) if setting.groups else np.zeros_like(clients)
    home = placement.homes(grid.size, np.asarray(stack))
    return placement.place(grid, {"train": train}, home)["train"]


def shrink(workload: Workload, scale: float) -> Workload:
    """The workload with `scale` times the clients, cohort and rows, at least a few."""
    if scale == 1:
        return workload

    def scaled(count: Any, least: int) -> Any:
        # None and 0 say that there is no such thing, and stay.
        return count and max(least, int(scale * count))

    # Each architecture keeps a client.
    least = len(workload.architectures)
    return workload._replace(
        clients=scaled(workload.clients, max(3, least)),
        cohort=scaled(workload.cohort, max(2, least)),
        rows=scaled(workload.rows, workload.batch_size),
        pool=scaled(workload.pool, 2 * (workload.rows or 1)),
        test=scaled(workload.test, 20),
    )


def make_task(workload: Workload) -> Task:
    """The model on rows of the workload, the first of several."""
    return make_tasks(workload)[0]


def make_tasks(workload: Workload) -> list[Task]:
    """The models on rows of the workload, one an architecture."""
    shape = components.Shape(
        num_clients=workload.clients,
        input_shape=workload.shape,
        num_classes=workload.num_classes,
        shift=0.0,
        scale=1.0,
        sizes=None,
    )
    return components.make_tasks(_experiment(workload), shape)


def _experiment(workload: Workload) -> Experiment:
    """What the settings of a run say of the models."""
    precision = workload.precision
    if len(workload.architectures) > 1:
        return Experiment(models=workload.model, precision=precision)
    return Experiment(model=workload.model, precision=precision)


def make_groups(
    workload: Workload, method: str, make: architectures.Make
) -> Groups | None:
    """The groups of clients of equal models; None where all have one."""
    return architectures.make_groups(
        _experiment(workload).replace(algorithm=method),
        make_tasks(workload),
        make,
        workload.clients,
        workload.shape,
    )


def make_setting(workload: Workload, task: Task, method: str) -> Setting:
    """Method, local training, selection, and how clients are laid on the device."""
    local = Local(
        learning_rate=workload.learning_rate,
        batch_size=workload.batch_size,
        epochs=workload.epochs,
    )
    choice = registry.parse(method)
    factory = algorithms.method(choice.name)
    registry.check("algorithm", choice, factory)
    # Of one round: a method that would start its own work later starts at once.
    filled_in = registry.given(
        factory,
        rounds=1,
        most_rows=int(sizes(workload).max()),
        public_rows=0,
    )

    def make(task: Task) -> Algorithm:
        return factory(task, local, **choice.kwargs, **filled_in)

    groups = make_groups(workload, choice.name, make)
    return Setting(
        algorithm=make(task) if groups is None else groups.algorithms[0],
        local=local,
        selection=uniform(workload.cohort, workload.clients),
        width=1 if jax.default_backend() == "cpu" else None,
        mesh=make_mesh(workload),
        groups=groups,
    )


def make_mesh(workload: Workload) -> mesh.Grid | None:
    """The devices that share the cohort; None for one.

    Where all clients take part they train at home, and no state travels.
    """
    count = devices.choose(None, workload.cohort)
    homes = workload.cohort == workload.clients
    return mesh.make(count, homes) if count > 1 else None


def make_data(workload: Workload) -> tuple[ClientData, ClientData | None]:
    """(rows of the clients, central test rows or None), the same in every process."""
    rng = np.random.default_rng(SEED)
    size = sizes(workload)
    if workload.pool is None:
        count = int(size.sum())
        offset = np.cumsum(size) - size
    else:
        count = workload.pool
        # Clients wrap around the pool, and none reaches beyond its end.
        offset = np.arange(len(size)) * size % (count - size.max() + 1)
    train = ClientData(
        examples=draw_rows(workload, count, rng),
        offset=_i32(offset),
        size=_i32(size),
    )
    if not workload.test:
        return train, None
    test = ClientData(
        examples=draw_rows(workload, workload.test, rng),
        offset=_i32([0]),
        size=_i32([workload.test]),
    )
    return train, test


def draw_rows(workload: Workload, count: int, rng: np.random.Generator) -> Examples:
    """`count` random rows and labels."""
    shape = (count, *workload.shape)
    if workload.vocab is None:
        x = rng.standard_normal(shape, np.float32)
    else:
        x = rng.integers(0, workload.vocab, shape, np.int32)
    y = rng.integers(0, workload.num_classes, count, np.int32)
    return Examples(jnp.asarray(x), jnp.asarray(y))


def sizes(workload: Workload) -> np.ndarray:
    """Training rows of each client, i64[C]."""
    if workload.rows is not None:
        return np.full(workload.clients, workload.rows)
    # Whole batches: simulators differ in what they do with a short one.
    batches = np.rint(power_law(workload.clients) / workload.batch_size)
    return np.maximum(1, batches).astype(np.int64) * workload.batch_size


def _i32(value: Any) -> jax.Array:
    return jnp.asarray(value, jnp.int32)
