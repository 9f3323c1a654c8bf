"""The catalogue of workloads: which model, which clients, and how they train.

W1 to W6 are of the sizes by which other simulators were measured, so that rates of
local steps can be compared; W7 is a population of a million. The clients of W8 and W9
have several architectures, those of FedGH and of FedTGP. W10 and W11 are ResNet-18 and
MobileNet on images as large as CIFAR's.
"""

from typing import NamedTuple

from pfljax.models.groups import GROUPS


class Workload(NamedTuple):
    """What a round is made of."""

    model: str  # or a group of models, which the clients have in turn
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
    precision: str = "float32"

    @property
    def architectures(self) -> tuple[str, ...]:
        """The models that the clients have in turn."""
        return GROUPS.get(self.model, (self.model,))


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
# All clients train in a round, so that a group alone is as large as among the others.
_W8 = Workload(
    model="htcnn_yi",
    shape=_IMAGE,
    num_classes=10,
    clients=20,
    rows=100,
    cohort=20,
    epochs=1,
    batch_size=10,
    learning_rate=0.01,
    rounds=1,
    methods=("fedproto", "fml"),
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
    "W8": _W8,
    "W9": _W8._replace(model="htfe4"),
    "W10": _W10,
    "W11": _W10._replace(model="mobilenet", batch_size=50),
}
