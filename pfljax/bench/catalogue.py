"""The workloads W1 to W11: the model, the clients, and how they train.

W1 to W6 have the sizes at which other simulators were measured, so that local steps per
second can be compared. W7 has a million clients. In W8 and W9 the clients have several
architectures: those of FedGH in W8, and those of FedTGP in W9. W10 and W11 train
ResNet-18 and MobileNet on images of CIFAR's size.
"""

from typing import Any, NamedTuple

from pfljax.models.model_groups import GROUPS


class Workload(NamedTuple):
    """The model, the clients and the local training of a round."""

    model: str  # or a group of models, which the clients take in turn
    shape: tuple[int, ...]  # of an example
    num_classes: int
    clients: int
    examples: int | None  # of each client; None for a power law
    cohort: int
    epochs: int
    batch_size: int
    learning_rate: float
    rounds: int  # of one timed call
    methods: tuple[str, ...] = ("fedavg",)
    vocab: int | None = None  # examples are tokens below it; None for normal numbers
    pool: int | None = None  # examples that all clients share; None if each has its own
    precision: Any = "float32"

    @property
    def architectures(self) -> tuple[str, ...]:
        """The models that the clients take in turn."""
        return GROUPS.get(self.model, (self.model,))


_IMAGE = (32, 32, 3)
_W1 = Workload(
    model="twonn",
    shape=(784,),
    num_classes=10,
    clients=100,
    examples=480,
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
    examples=400,
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
    examples=None,
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
    examples=200,
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
    examples=50,
    cohort=50,
    epochs=1,
    batch_size=10,
    learning_rate=0.1,
    rounds=2,
)
# Each of a million clients keeps a personal head of 9 * 10 + 10 numbers.
_W7 = Workload(
    model="mlp:hidden=(9,)",
    shape=(64,),
    num_classes=10,
    clients=1_000_000,
    examples=20,
    cohort=1000,
    epochs=1,
    batch_size=10,
    learning_rate=0.1,
    rounds=5,
    methods=("fedper",),
    pool=10_000,
)
# All clients train in a round, each on the device that has its state.
_W8 = Workload(
    model="htcnn_yi",
    shape=_IMAGE,
    num_classes=10,
    clients=20,
    examples=100,
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
    examples=100,
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
