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
      metric: The metric of the figures, such as loss or accuracy.
      points: The number of points along an axis, 3 or more.
      range: Where an axis begins and ends. The ends of a line are 0 and 1.
      rows: The "own" test examples of each client, "all" test examples, or "train".
      seed: The seed of random directions, of samples, and of the training of curves.
      tolerance: The range of a metric on a line that counts as flat.
      endpoints: From one model that the method mixes to the other, as it reports them.
      other: A second run: from each personal model here to the same client's there.
      through: Two or three models of a plane, or clients: server client:3 client:7.
      align: First permute hidden units so that they match, and say what it changes.
      statistics: On a line, "recompute" running statistics, "repair" the means and
        deviations of hidden units, or "mix" running statistics like parameters.
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
