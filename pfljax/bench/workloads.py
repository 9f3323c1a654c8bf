"""The workloads: which model, which clients, and how they train.

W1 to W6 are of the sizes by which other simulators were measured, so that rates of
local steps can be compared; W7 is a population of a million. W10 and W11 are ResNet-18
and MobileNet on images as large as CIFAR's. Rows are random numbers.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import algorithms, models, registry
from pfljax.bench.power_law import power_law
from pfljax.core.types import ClientData, Examples, Key, Local, RunState, Task
from pfljax.engine import Setting, mesh
from pfljax.runtime import devices
from pfljax.selection import uniform
from pfljax.simulate.first_state import make_init

SEED = 12345


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


_IMAGE = (32, 32, 3)
_W1 = Workload(
    model="twonn",
    shape=(784,),
    num_classes=10,
    clients=100,
    rows=480,
    cohort=10,
    epochs=5,
    batch_size=10,
    learning_rate=0.01,
    rounds=5,
)
_W2 = Workload(
    model="twocnn",
    shape=_IMAGE,
    num_classes=10,
    clients=100,
    rows=400,
    cohort=5,
    epochs=2,
    batch_size=10,
    learning_rate=0.01,
    rounds=2,
)
_W3 = Workload(
    model="logistic",
    shape=(784,),
    num_classes=10,
    clients=1000,
    rows=None,
    cohort=10,
    epochs=20,
    batch_size=10,
    learning_rate=0.01,
    rounds=5,
)
_W4 = Workload(
    model="char_lstm",
    shape=(80,),
    num_classes=80,
    clients=50,
    rows=200,
    cohort=5,
    epochs=1,
    batch_size=50,
    learning_rate=0.5,
    rounds=2,
    vocab=80,
)
_W6 = Workload(
    model="cifar_cnn",
    shape=_IMAGE,
    num_classes=10,
    clients=1000,
    rows=50,
    cohort=50,
    epochs=1,
    batch_size=10,
    learning_rate=0.1,
    rounds=2,
    test=10_000,
)
# Each of a million clients keeps a personal head of 9 * 10 + 10 numbers.
_W7 = Workload(
    model="mlp:hidden=(9,)",
    shape=(64,),
    num_classes=10,
    clients=1_000_000,
    rows=20,
    cohort=1000,
    epochs=1,
    batch_size=10,
    learning_rate=0.1,
    rounds=5,
    methods=("fedper",),
    pool=10_000,
)
_W10 = Workload(
    model="resnet18",
    shape=_IMAGE,
    num_classes=10,
    clients=100,
    rows=100,
    cohort=4,
    epochs=1,
    batch_size=20,
    learning_rate=0.1,
    rounds=1,
)
WORKLOADS: dict[str, Workload] = {
    "W1": _W1,
    "W2": _W2,
    "W3": _W3,
    "W4": _W4,
    "W5": _W1._replace(methods=("ditto", "superfed")),
    "W6": _W6,
    "W7": _W7,
    "W10": _W10,
    "W11": _W10._replace(model="mobilenet", batch_size=50),
}


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
    return Ready(
        name=name,
        method=method,
        workload=workload,
        task=task,
        setting=setting,
        train=train,
        test=test,
    )


def shrink(workload: Workload, scale: float) -> Workload:
    """The workload with `scale` times the clients, cohort and rows, at least a few."""
    if scale == 1:
        return workload

    def scaled(count: Any, least: int) -> Any:
        # None and 0 say that there is no such thing, and stay.
        return count and max(least, int(scale * count))

    return workload._replace(
        clients=scaled(workload.clients, 3),
        cohort=scaled(workload.cohort, 2),
        rows=scaled(workload.rows, workload.batch_size),
        pool=scaled(workload.pool, 2 * (workload.rows or 1)),
        test=scaled(workload.test, 20),
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
    filled_in = registry.given(
        factory,
        rounds=1,
        most_rows=int(sizes(workload).max()),
        public_rows=0,
    )
    count = devices.choose(None, workload.cohort)
    return Setting(
        algorithm=factory(task, local, **choice.kwargs, **filled_in),
        local=local,
        selection=uniform(workload.cohort, workload.clients),
        width=1 if jax.default_backend() == "cpu" else None,
        mesh=mesh.make(count) if count > 1 else None,
    )


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
