"""The metric that reports lead with: its name, unit and direction."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from pfljax.evaluation.over_clients import headline, is_greater_better, is_share
from pfljax.report.frames import Frame
from pfljax.runs.result import Result

EMPTY = "–"
ABBREVIATIONS = ("auc", "auroc", "ece", "f1", "mae", "mce", "ndcg", "r2", "rmse")


def format_number(value: float | None, form: str, scale: float = 1) -> str:
    """value * scale in this format; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return EMPTY
    return format(value * scale, form)


class Lead(NamedTuple):
    """The metric that leads, and how its numbers are shown: a share in percent."""

    name: str  # such as "micro_f1"
    title: str  # in a sentence, such as "micro F1"
    sign: int  # sign * value is greater where it is better
    scale: float = 1  # shown = value * scale
    form: str = ".4f"
    unit: str = ""  # behind a number
    points: str = ""  # behind a difference

    @property
    def is_share(self) -> bool:
        """True for a share of 1, such as the accuracy."""
        return bool(self.unit)

    @property
    def short(self) -> str:
        """The title in the heading of a narrow column."""
        return "acc." if self.name == "accuracy" else self.title

    @property
    def label(self) -> str:
        """The title with its unit, for an axis."""
        return f"{self.title} (%)" if self.is_share else self.title

    @property
    def heading(self) -> str:
        """The title at the beginning of a line."""
        return self.title[0].upper() + self.title[1:]

    def number(self, value: float | None) -> str:
        """A value without its unit; a dash for None and NaN."""
        return format_number(value, self.form, self.scale)

    def text(self, value: float | None) -> str:
        """A value with its unit."""
        return f"{self.number(value)}{self.unit}"

    def fill(self, text: str, **more: Any) -> str:
        """A caption or note with the words of this metric."""
        return text.format(
            metric=self.title,
            greater="greater" if self.sign > 0 else "smaller",
            percent=", in %" if self.is_share else "",
            points=", in points" if self.is_share else "",
            points_of="points of " if self.is_share else "",
            gains="in points" if self.is_share else "positive where a method is better",
            heading=self.heading,
            **more,
        )


def make_lead(name: str) -> Lead:
    """The metric of this name."""
    words = [w.upper() if w in ABBREVIATIONS else w for w in name.split("_")]
    lead = Lead(name, " ".join(words), 1 if is_greater_better(name) else -1)
    if not is_share(name):
        return lead
    return lead._replace(scale=100, form=".2f", unit=" %", points=" points")


def find_lead(runs: Sequence[Result]) -> Lead:
    """The metric that leads in all runs: that of their task if they monitor others.

    Raises:
      ValueError: not all runs have it.
    """
    monitors = {run.experiment.monitor for run in runs}
    monitor = monitors.pop() if len(monitors) == 1 else "auto"
    names = {headline(run.personal.test.figures, monitor) for run in runs}
    if len(names) > 1:
        raise ValueError(
            f"the runs are scored by {' and '.join(sorted(names))}; give runs of one "
            "kind of task"
        )
    return make_lead(names.pop())


def read_lead(frame: Frame) -> Lead:
    """The metric that leads in a tidy table."""
    return make_lead(frame.metric[frame.leads].iloc[0])
