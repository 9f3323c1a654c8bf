"""A federation: all clients over one pool of examples, in train, validation, test."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from pfljax.core.factories import validate
from pfljax.core.ranges import Range
from pfljax.core.requirements import find
from pfljax.core.types import ClientData
from pfljax.data.manifest import GROUPS, NAMES, subset
from pfljax.data.values import Seed, as_integers, brief

HeldOut = Annotated[
    float,
    Range(lambda value: 0 < value < 1, "a fraction above 0 and below 1", on_host=True),
]


@dataclass(frozen=True)
class Federation:
    """All clients' data. The three parts share one pool of examples."""

    train: ClientData  # offset, size i32[C]; examples are the pool, [N, ...]
    validation: ClientData
    test: ClientData
    num_classes: int  # K, the width of a model's outputs
    shift: Any  # the model sees (x - shift) / scale; a number or one a channel
    scale: Any
    name: str
    class_names: tuple[str, ...]
    manifest: dict[str, Any]  # source, settings and counts of each client, as JSON
    index: Any = None  # i32[N], place in the data set of each example of the pool
    official: Any = None  # u8[N], its official split: an index into OFFICIAL_NAMES
    public: ClientData | None = None  # examples of the server, in a pool of their own
    # Examples of other classes that a run has to detect, by split.
    ood: dict[str, Any] | None = None
    kind: str = "classes"  # of the targets, a name in `core.kinds`

    @property
    def num_clients(self) -> int:
        """The number of clients, C."""
        return len(self.train.size)

    @property
    def parts(self) -> dict[str, ClientData]:
        """The training, validation and test examples by name."""
        return {
            "train": self.train,
            "validation": self.validation,
            "test": self.test,
        }

    def take(self, ids: Any) -> "Federation":
        """Returns the clients `ids` i[M], in that order, over the same pool."""
        ids = _check_ids(ids, self.num_clients)
        # The pool is shared, not copied: a client is an offset and a size in it.
        parts = {
            name: ClientData(part.examples, part.offset[ids], part.size[ids])
            for name, part in self.parts.items()
        }
        return replace(self, manifest=subset(self.manifest, ids.tolist()), **parts)

    def find(self, text: str) -> np.ndarray:
        """Finds clients i[M] by their names or numbers, as "anna,ben" or "3,5".

        "domain=photo" finds all of a group of the data.

        Raises:
            ValueError: no client has this name, or is in this group.
        """
        group, equals, value = text.partition("=")
        manifest = self.manifest
        names = manifest.get(NAMES) or map(str, manifest["clients"])
        number = {name: k for k, name in enumerate(names)}
        if text in number or not equals:
            wanted = [text] if text in number else text.split(",")
            return np.unique([find("client", number, name.strip()) for name in wanted])
        values = find("group of clients", manifest.get(GROUPS, {}), group)
        find(group, dict.fromkeys(values), value)
        return np.flatnonzero(np.array(values) == value)

    @validate
    def hold_out(
        self, fraction: HeldOut | str, seed: Seed = 0
    ) -> tuple["Federation", "Federation"]:
        """Holds clients out; returns (training, unseen).

        They are int(fraction * C) random ones, or those that `find` finds by a text.
        """
        if isinstance(fraction, str):
            unseen = self.find(fraction)
            training = np.setdiff1d(range(self.num_clients), unseen)
            return self.take(training), self.take(unseen)
        num_unseen = int(fraction * self.num_clients)
        if not num_unseen:
            raise ValueError(
                f"fraction is {fraction} of {self.num_clients} clients; choose a "
                f"fraction with 1 <= int(fraction * {self.num_clients}) < all of them"
            )
        drawn = np.random.default_rng(seed).permutation(self.num_clients)
        unseen = np.sort(drawn[:num_unseen])
        training = np.sort(drawn[num_unseen:])
        return self.take(training), self.take(unseen)


def _check_ids(ids: Any, num_clients: int) -> np.ndarray:
    clients = as_integers("client ids", ids, "[M], M >= 1")
    if not len(clients) or clients.min() < 0 or clients.max() >= num_clients:
        raise ValueError(
            f"client ids are {brief(ids)}; expected one or more of 0 .. "
            f"{num_clients - 1}"
        )
    return clients
