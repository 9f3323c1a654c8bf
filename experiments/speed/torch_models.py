"""The models of `pfljax.bench.catalogue` in PyTorch, for `torch_gpu`.

Layers and sizes are those of `pfljax.models`.
"""

from collections.abc import Callable

import torch
import torch_workloads
from torch import nn


class CharLstm(nn.Module):
    """The model of W4."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.head = nn.Linear(256, 80)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Characters [B, 80] -> logits of the next."""
        states, _ = self.lstm(self.embedding(x))
        return self.head(states[:, -1])


def twonn() -> nn.Module:
    """The model of W1 and W5."""
    hidden = [nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(200, 10))


def twocnn() -> nn.Module:
    """The model of W2."""
    first = [nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    dense = [nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*first, *second, *dense)


def cifar_cnn() -> nn.Module:
    """The model of W6."""
    body = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
    pooled = [nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()]
    dense = [nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)]
    return nn.Sequential(*body, *pooled, *dense)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "twonn": twonn,
    "twocnn": twocnn,
    "logistic": lambda: nn.Linear(784, 10),
    "char_lstm": CharLstm,
    "cifar_cnn": cifar_cnn,
    "resnet18": torch_workloads.resnet18,
    "mobilenet": torch_workloads.mobilenet,
    "mlp:hidden=(9,)": lambda: nn.Sequential(
        nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10)
    ),
}
