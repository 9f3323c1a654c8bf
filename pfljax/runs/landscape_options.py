"""The options of a landscape of a run, for Python and for the command line."""

import dataclasses
from pathlib import Path
from typing import Literal


@dataclasses.dataclass(frozen=True)
class LandscapeOptions:
    """What to show of a finished run.

    Each kind takes some of the options; others are refused. None is the kind's default.

    Attributes:
      kind: line, curve, pairs, plane, hessian, curvature, training or over-rounds.
      metric: The metric of the figures; by default accuracy and loss on lines, and the
        loss elsewhere.
      points: The number of points along an axis, or on a line from 0 to 1; 3 or more.
      range: Where an axis begins and ends. A line goes from one model at 0 to the other
        at 1; its range holds both, and may reach beyond.
      rows: The "own" test examples of each client, "all" test examples, or "train".
      seed: The seed of random directions, of samples, and of the training of curves.
      tolerance: How much worse than its best a metric on a line still counts as flat.
      endpoints: From one model that the method mixes to the other, as it reports them.
      other: A second run: from each personal model here to the same client's there.
      through: Two or three models of a plane, or clients: server client:3 client:7.
      align: First permute hidden units so that they match, and say what it changes.
      statistics: Of models between two others on a line. "recompute" (the default) or
        "mix" running statistics, or "repair" hidden units of a model without them.
      layers: Also show the curvature of each layer.
    """

    kind: str = "line"
    metric: str | None = None
    points: int | None = None
    range: tuple[float, float] | None = None
    rows: Literal["own", "all", "train"] | None = None
    seed: int | None = None
    tolerance: float | None = None
    endpoints: bool = False
    other: Path | None = None
    through: tuple[str, ...] = ()
    align: bool = False
    statistics: Literal["recompute", "repair", "mix"] | None = None
    layers: bool = False

    replace = dataclasses.replace


ROWS = {
    "own": "each client's own test examples",
    "all": "all clients' test examples",
    "train": "training examples",
}
