"""The workloads: which model, which clients, and how they train.

W1 to W6 are of the sizes by which other simulators were measured, so that rates of
local steps can be compared; W7 is a population of a million. Rows are random numbers.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import algorithms, models, registry
from pfljax.core.types import ClientData, Examples, Key, Local, RunState, Task
from pfljax.engine import Setting, mesh
from pfljax.runtime import devices
from pfljax.selection import uniform
from pfljax.simulate.simulation import make_init

SEED = 12345
# A log-normal tail on a floor of 10 rows.
FEWEST, MOST, MEAN, SIGMA = 10, 4000, 69.0, 1.9


class Workload(NamedTuple):
    """What a round is made of."""

    model: str
    shape: tuple[int, ...]  # of a row
    num_classes: int
    clients: int
    rows: int | None  # of each client; None: a power law
    cohort: int
    epochs: int
    batch_size: int
    learning_rate: float
    rounds: int  # of one timed call
    methods: tuple[str, ...] = ("fedavg",)
    vocab: int | None = None  # rows are tokens below it; None: normal numbers
    pool: int | None = None  # rows that all clients share; None: each has its own
    test: int = 0  # rows of a central test set


_W1 = Workload("twonn", (784,), 10, 100, 480, 10, 5, 10, 0.01, 5)
_IMAGE = (32, 32, 3)
WORKLOADS: dict[str, Workload] = {
    "W1": _W1,
    "W2": Workload("twocnn", _IMAGE, 10, 100, 400, 5, 2, 10, 0.01, 2),
    "W3": Workload("logistic", (784,), 10, 1000, None, 10, 20, 10, 0.01, 5),
    "W4": Workload("char_lstm", (80,), 80, 50, 200, 5, 1, 50, 0.5, 2, vocab=80),
    "W5": _W1._replace(methods=("ditto", "superfed")),
    "W6": Workload("cifar_cnn", _IMAGE, 10, 1000, 50, 50, 1, 10, 0.1, 2, test=10_000),
    "W7": Workload(  # a personal head of 9 * 10 + 10 numbers
        "mlp:hidden=(9,)", (64,), 10, 1_000_000, 20, 1000, 1, 10, 0.1, 5,
        ("fedper",), pool=10_000,
    ),
}  # fmt: skip


class Ready(NamedTuple):
    """A workload under one method, with its data."""

    name: str
    method: str
    workload: Workload
    task: Task
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
    task = make_task(workload)
    setting = make_setting(workload, task, method)
    train, test = mesh.place(setting.mesh, make_data(workload))
    return Ready(name, method, workload, task, setting, train, test)


def shrink(workload: Workload, scale: float) -> Workload:
    """The workload with `scale` times the clients, cohort and rows, at least a few."""
    if scale == 1:
        return workload

    def less(count: Any, least: int) -> Any:
        return count and max(least, int(scale * count))

    return workload._replace(
        clients=less(workload.clients, 3),
        cohort=less(workload.cohort, 2),
        rows=less(workload.rows, workload.batch_size),
        pool=less(workload.pool, 2 * (workload.rows or 1)),
        test=less(workload.test, 20),
    )


def make_task(workload: Workload) -> Task:
    """The model on rows of the workload."""
    choice = registry.parse(workload.model)
    module = models.model(choice.name, workload.num_classes, **choice.kwargs)
    return models.task(module, workload.shape)


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
    given = registry.given(factory, rounds=1)
    algorithm = factory(task, local, **choice.kwargs, **given)
    width = 1 if jax.default_backend() == "cpu" else None
    chosen = uniform(workload.cohort, workload.clients)
    count = devices.choose(None, workload.cohort)
    several = mesh.make(count) if count > 1 else None
    return Setting(algorithm, local, chosen, width, several)


def make_data(workload: Workload) -> tuple[ClientData, ClientData | None]:
    """(rows of the clients, central test rows or None), the same in every process."""
    rng = np.random.default_rng(SEED)
    size = sizes(workload)
    if workload.pool is None:
        count, offset = int(size.sum()), np.cumsum(size) - size
    else:
        count = workload.pool
        offset = np.arange(len(size)) * size % (count - size.max() + 1)
    pool = draw_rows(workload, count, rng)
    train = ClientData(pool, _i32(offset), _i32(size))
    if not workload.test:
        return train, None
    pool = draw_rows(workload, workload.test, rng)
    return train, ClientData(pool, _i32([0]), _i32([workload.test]))


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
    whole = np.rint(power_law(workload.clients) / workload.batch_size)
    # Whole batches: simulators differ in what they do with a short one.
    return np.maximum(1, whole).astype(np.int64) * workload.batch_size


def power_law(clients: int) -> np.ndarray:
    """Rows i64[clients] from FEWEST to MOST, of mean MEAN: few have many."""
    tail = np.random.RandomState(0).lognormal(0.0, SIGMA, clients)

    def scaled(by: float) -> np.ndarray:
        return np.clip(FEWEST + np.floor(by * tail), FEWEST, MOST)

    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        enough = scaled(middle).mean() >= MEAN
        low, high = (low, middle) if enough else (middle, high)
    return scaled(high).astype(np.int64)


def _i32(value: Any) -> jax.Array:
    return jnp.asarray(value, jnp.int32)
