"""The settings of a run as options of the command line.

tyro makes an option of each field of a dataclass. `make_options` makes this dataclass
from the fields of `Experiment`, where a component is a text, such as "ditto:lam=1.0".
`to_experiment` makes an `Experiment` of the values that tyro read.
"""

import dataclasses
import random
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Union

from tyro.conf import arg

from pfljax.core import annotations, components
from pfljax.runs.config import to_json
from pfljax.runs.settings import FIELDS, HELP, Experiment

NUMBER = r"[-+]?[\d.]*\d\.?(?:[eE][-+]?\d+)?"
RANGE = re.compile(
    rf"(log|lin)(?P<kind>[:~])(?P<low>{NUMBER})\.\.(?P<high>{NUMBER})"
    r":(?P<count>\d+)(?:@(?P<seed>\d+))?"
)
SCALES = ("log:", "log~", "lin:", "lin~")
NONE = (0, 0, 0)
# The settings that `run --help` lists.
COMMON = (
    *("algorithm", "model", "dataset", "partition", "clients", "test", "validation"),
    *("epochs", "batch_size", "lr", "momentum", "weight_decay", "optimizer", "rounds"),
    *("cohort", "selection", "eval_every", "devices", "out", "seed"),
)
CONFIG = (
    "A .toml file of settings, or the config.json of a run, in place of the defaults. "
    "`pfljax run FILE` is the same. Other options take precedence: `pfljax run FILE "
    "--rounds 200 --out FOLDER`. `run` also takes the folder from the file, unless "
    "--out names another."
)


def make_options(
    names: Collection[str], base: Experiment | None = None, has_file: bool = True
) -> type:
    """A dataclass of the settings of these names, in a group for each heading.

    Args:
      names: the settings to include.
      base: the experiment with the defaults; None for the usual ones.
      has_file: whether --config is an option, too.
    """
    defaults = to_json(base or Experiment())
    groups = []
    for heading, texts in HELP.items():
        fields = [
            _make_field(name, text, defaults[name])
            for name, text in texts.items()
            if name in names
        ]
        group = dataclasses.make_dataclass(heading, fields, namespace={"__doc__": ""})
        groups.append((heading, group, dataclasses.field(default_factory=group)))
    if has_file:
        file = Annotated[str | None, arg(help=CONFIG)]
        groups.append(("config", file, dataclasses.field(default=None)))
    return dataclasses.make_dataclass("Options", groups)


def _make_field(name: str, text: str, default: Any) -> tuple[str, Any, Any]:
    """(name, annotation, field) of a setting, as `make_dataclass` takes them."""
    if isinstance(default, list):
        kind: Any = tuple[str, ...]
        default = tuple(default)
    elif "converter" in FIELDS[name].metadata:
        kind = str
    else:
        # Without ranges, which tyro does not look for in a union.
        alternatives = annotations.alternatives(FIELDS[name].type)
        kind = Union[tuple(each.type for each in alternatives)]  # noqa: UP007
    annotation = Annotated[kind, arg(help=text)]
    return name, annotation, dataclasses.field(default=default)


def to_experiment(options: Any) -> Experiment:
    """The experiment of a dataclass that `make_options` made."""
    values: dict[str, Any] = {}
    for heading in HELP:
        values |= vars(getattr(options, heading))
    return Experiment(**values)


def parse_over(
    over: Sequence[Sequence[str]], without: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """The values of --over NAME VALUE VALUE ..., by name, and of --without NAME ..."""
    by_name: dict[str, list[Any]] = {}
    for name, *texts in filter(None, over):
        name = name.replace("-", "_")
        if not texts:
            raise ValueError(f"--over {name} has no value; give --over {name} VALUE")
        if name in by_name:
            raise ValueError(f"--over {name} is given twice; give all values at once")
        by_name[name] = [value for text in texts for value in _read_values(text)]
    if without:
        by_name["without"] = [None, *(name.replace("-", "_") for name in without)]
    if not by_name:
        raise ValueError("--over is missing; give --over NAME VALUE VALUE")
    return by_name


def _read_values(text: str) -> list[Any]:
    """The value of a text, or those of a range, such as "log:0.001..0.1:9".

    "log~0.001..0.1:9@1" are nine random values, drawn with the seed 1; it is 0 if it is
    left out. They have four digits.

    Raises:
      ValueError: the range is empty, or logarithmic and not above 0, or no range.
    """
    if not text.startswith(SCALES):
        return [components.literal(text)]
    found = RANGE.fullmatch(text)
    low, high, count = map(
        float, found.group("low", "high", "count") if found else NONE
    )
    is_log = text.startswith("log")
    if found is None or not low < high or count < 2 or (is_log and low <= 0):
        raise ValueError(
            f"--over has {text!r}; expected LOW..HIGH:COUNT, with LOW < HIGH, LOW > 0 "
            "if it is logarithmic, and COUNT from 2 on, such as log:0.001..0.1:9"
        )
    count = int(count)
    if found["kind"] == ":":
        shares = [i / (count - 1) for i in range(count)]
    else:
        rng = random.Random(int(found["seed"] or 0))
        shares = sorted(rng.random() for _ in range(count))
    if is_log:
        values = [low * (high / low) ** share for share in shares]
    else:
        values = [low + (high - low) * share for share in shares]
    rounded = [float(f"{value:.4g}") for value in values]
    # Some settings are whole numbers, and others take them.
    return [int(value) if value.is_integer() else value for value in rounded]


@dataclasses.dataclass(frozen=True)
class Processes:
    """For an experiment that several processes run together."""

    distributed: Annotated[
        bool, arg(help="Ask the cluster manager, such as Slurm, for the others.")
    ] = False
    coordinator: Annotated[
        str | None, arg(help="HOST:PORT of process 0, without a manager.")
    ] = None
    processes: Annotated[int | None, arg(help="The number of processes.")] = None
    process: Annotated[int | None, arg(help="The number of this process, from 0.")] = (
        None
    )


RunFolder = Annotated[Path, arg(help="The folder of a run.")]
