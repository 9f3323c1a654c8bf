"""Workloads with task, setting and data. Examples are random numbers."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pfljax import algorithms
from pfljax.bench.catalogue import WORKLOADS, Workload
from pfljax.core import factories, requirements
from pfljax.core.components import parse
from pfljax.core.types import ClientData, Examples, Key, RunState, Task
from pfljax.engine import Setting, mesh, placement
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.simulate import components
from pfljax.simulate.first_state import make_init
from pfljax.simulate.shape import Shape

SEED = 12345
# The clients of W3 have a log-normal number of examples with these limits and mean.
FEWEST = 10
MOST = 4000
MEAN = 69.0
SIGMA = 1.9


class Ready(NamedTuple):
    """A workload under one method, with its data."""

    name: str
    method: str
    workload: Workload
    task: Task  # of the first architecture, where there are several
    setting: Setting
    train: ClientData

    def init(self, key: Key) -> RunState:
        """The state before the first round."""
        count = self.workload.clients
        return make_init(self.setting, self.task, count)(key)


def build(name: str, method: str, scale: float = 1.0) -> Ready:
    """The workload `name` under `method`, "name" or "name:key=value".

    `scale` < 1 shrinks clients, cohort and examples, for tests.
    """
    workload = shrink(requirements.find("workload", WORKLOADS, name), scale)
    return prepare(name, workload, method)


def prepare(name: str, workload: Workload, method: str) -> Ready:
    """The workload under `method`, with its data on the devices."""
    experiment = _experiment(workload, method)
    shape = _shape(workload, method)
    task = components.make_task(experiment, shape)
    setting = components.make_setting(experiment, task, shape)
    train = _place(setting, make_data(workload))
    return Ready(name, method, workload, task, setting, train)


def shrink(workload: Workload, scale: float) -> Workload:
    """The workload with `scale` times the clients, cohort and examples."""
    if scale == 1:
        return workload
    # Each architecture keeps a client.
    least = len(workload.architectures)
    smaller = workload._replace(
        clients=max(3, least, int(scale * workload.clients)),
        cohort=max(2, least, int(scale * workload.cohort)),
    )
    if workload.examples is not None:
        examples = max(workload.batch_size, int(scale * workload.examples))
        smaller = smaller._replace(examples=examples)
    if workload.pool is not None:
        pool = max(2 * (workload.examples or 1), int(scale * workload.pool))
        smaller = smaller._replace(pool=pool)
    return smaller


def make_tasks(workload: Workload) -> list[Task]:
    """The models of the workload, one for each architecture."""
    method = workload.methods[0]
    return components.make_tasks(
        _experiment(workload, method), _shape(workload, method)
    )


def make_setting(workload: Workload, method: str) -> Setting:
    """The method, the local training, the selection and the devices."""
    experiment = _experiment(workload, method)
    shape = _shape(workload, method)
    task = components.make_task(experiment, shape)
    return components.make_setting(experiment, task, shape)


def _experiment(workload: Workload, method: str) -> Experiment:
    experiment = Experiment(
        algorithm=method,
        clients=workload.clients,
        cohort=workload.cohort,
        epochs=workload.epochs,
        batch_size=workload.batch_size,
        lr=workload.learning_rate,
        # One round: a method that would start its own work later starts at once.
        rounds=1,
        precision=workload.precision,
        devices=devices.choose(None, workload.cohort),
        # If all clients take part, each trains where its state lies.
        pin_clients=workload.cohort == workload.clients,
    )
    if len(workload.architectures) > 1:
        return experiment.replace(models=workload.model)
    return experiment.replace(model=workload.model)


def _shape(workload: Workload, method: str) -> Shape:
    factory = algorithms.method(parse(method).name)
    known = factories.select_context(
        factory,
        max_examples=int(sizes(workload).max()),
        num_public=0,
        num_clients=workload.clients,
    )
    return Shape(
        num_clients=workload.clients,
        input_shape=workload.shape,
        num_classes=workload.num_classes,
        for_method=tuple(known.items()),
    )


def _place(setting: Setting, train: ClientData) -> ClientData:
    """The examples on every device, or each client's on the device with its state."""
    grid = setting.mesh
    if grid is None or not grid.pin_clients:
        return mesh.place(grid, train)
    clients = np.arange(len(train.size))
    stack = setting.groups.of(clients) if setting.groups else np.zeros_like(clients)
    owner = placement.owners(grid.size, np.asarray(stack))
    return placement.place(grid, {"train": train}, owner)["train"]


def make_data(workload: Workload) -> ClientData:
    """The examples of the clients, the same in every process."""
    rng = np.random.default_rng(SEED)
    size = sizes(workload)
    if workload.pool is None:
        count = int(size.sum())
        offset = np.cumsum(size) - size
    else:
        count = workload.pool
        # Clients wrap around the pool, and none reaches beyond its end.
        offset = np.arange(len(size)) * size % (count - size.max() + 1)
    return ClientData(
        examples=draw_examples(workload, count, rng),
        offset=jnp.asarray(offset, jnp.int32),
        size=jnp.asarray(size, jnp.int32),
    )


def draw_examples(workload: Workload, count: int, rng: np.random.Generator) -> Examples:
    """`count` random examples and labels."""
    shape = (count, *workload.shape)
    if workload.vocab is None:
        x: Any = rng.standard_normal(shape, np.float32)
    else:
        x = rng.integers(0, workload.vocab, shape, np.int32)
    y = rng.integers(0, workload.num_classes, count, np.int32)
    return Examples(jnp.asarray(x), jnp.asarray(y))


def sizes(workload: Workload) -> np.ndarray:
    """The training examples of each client, i64[C]."""
    if workload.examples is not None:
        return np.full(workload.clients, workload.examples)
    # Whole batches: simulators differ in what they do with a short one.
    batches = np.rint(power_law(workload.clients) / workload.batch_size)
    return np.maximum(1, batches).astype(np.int64) * workload.batch_size


def power_law(clients: int) -> np.ndarray:
    """Examples i64[clients] from FEWEST to MOST, of mean MEAN: few have many."""
    tail = np.random.RandomState(0).lognormal(0.0, SIGMA, clients)

    def clip(scale: float) -> np.ndarray:
        return np.clip(FEWEST + np.floor(scale * tail), FEWEST, MOST)

    # Bisection: the mean grows with the scale, and `high` is always enough.
    low = 0.0
    high = 1e4
    for _ in range(60):
        middle = (low + high) / 2
        if clip(middle).mean() >= MEAN:
            high = middle
        else:
            low = middle
    return clip(high).astype(np.int64)
