"""The work of `pfljax inspect`: what pfljax reads of a data set, on one screen."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pfljax import data
from pfljax.core.requirements import require_known
from pfljax.data.arrays import OFFICIAL_NAMES
from pfljax.report.figures import draw_partition
from pfljax.report.style import save_figure
from pfljax.runs import checks
from pfljax.runs.settings import Experiment
from pfljax.runtime import files
from pfljax.runtime.terminal import show
from pfljax.simulate.federation import (
    build_federation,
    deal,
    describe_numbers,
    describe_split,
    load,
)

KINDS = (".png", ".pdf", ".svg")
WIDTH = 96  # letters of a line
ROWS = 5


def inspect(experiment: Experiment, out: Path) -> None:
    """Prints what the data are and how they are divided, and draws this into `out`."""
    require_known("--out", out.suffix, KINDS)
    checks.check(experiment)
    arrays = load(experiment)
    show("\n".join(_describe(arrays)))
    # The default divides by labels what may have clients already.
    if arrays.client is not None and experiment.partition == Experiment().partition:
        experiment = experiment.replace(partition="natural", clients=None)
    training, unseen = build_federation(experiment, deal(experiment, arrays))
    lines = [
        _line("partition", str(experiment.partition)),
        describe_split(training),
        _describe_clients("clients that train", training),
    ]
    if unseen is not None:
        lines.append(_describe_clients("clients held out", unseen))
    figure = draw_partition(training.manifest)
    if figure is not None:
        files.make_folder(out.parent)
        save_figure(figure, out.with_suffix(""), [out.suffix[1:]])
        lines.append(f"The examples of each client are drawn in {out}.")
    else:
        lines.append("Nothing is drawn: the examples have no labels to count.")
    show("\n".join(lines))


def _describe(arrays: data.Arrays) -> list[str]:
    x, y = arrays.x, arrays.y
    targets = _line("targets", f"{arrays.kind}, {_describe_array(y)}")
    if arrays.kind == "classes":
        counts = np.bincount(y, minlength=arrays.num_classes)
        targets = _line("classes", _count(arrays.class_names, counts))
    official = np.bincount(arrays.official, minlength=len(OFFICIAL_NAMES))
    sizes = zip(OFFICIAL_NAMES, official, strict=True)
    shifted, scaled = describe_numbers(arrays)
    lines = [
        _line("data set", f"{arrays.name} ({arrays.source})"),
        _line("x", _describe_array(x)),
        _line("models see", f"{scaled} (models of tokens: {shifted})"),
        targets,
        _line("official split", ", ".join(f"{name} {n}" for name, n in sizes if n)),
        _line("natural clients", "none"),
    ]
    if arrays.client is not None:
        held = np.bincount(arrays.client)
        names = arrays.client_names or range(len(held))
        lines[-1] = _line("natural clients", _count(names, held))
    for group, (number, names) in arrays.groups.items():
        lines.append(_line(group, _count(names, np.bincount(number))))
    return [*lines, *_describe_examples(arrays)]


def _describe_examples(arrays: data.Arrays) -> Iterator[str]:
    for row in range(min(ROWS, len(arrays.x))):
        y, whose = arrays.y[row], ""
        target = f"target {_list_values(y)}"
        if arrays.kind == "classes":
            target = f"class {arrays.class_names[y]}"
        if arrays.client is not None:
            number = arrays.client[row]
            names = arrays.client_names
            whose = f" of client {names[number] if names else number}"
        shown = f"{target}{whose}, x = {_list_values(arrays.x[row])}"
        yield _line(f"example {row}", shown)


def _describe_array(array: np.ndarray) -> str:
    shape = list(array.shape)
    return f"{array.dtype}{shape}, from {array.min():g} to {array.max():g}"


def _list_values(array: np.ndarray) -> str:
    values = ", ".join(f"{value:.4g}" for value in array.flat[:12])
    return f"[{values}, …" if array.size > 12 else f"[{values}]"


def _describe_clients(title: str, clients: data.Federation) -> str:
    sizes = clients.manifest["sizes"].items()
    counts = [f"{sum(n)} {part} ({min(n)} to {max(n)} each)" for part, n in sizes]
    return f"{title:18} {clients.num_clients}, with examples: {', '.join(counts)}"


def _count(names: Sequence, sizes: np.ndarray) -> str:
    each = (f"{name} {size}" for name, size in zip(names, sizes, strict=True))
    return f"{len(sizes)}, with examples: {', '.join(each)}"


def _line(title: str, text: str) -> str:
    """A title and its text, cut at the width of the screen."""
    line = f"{title:18} {text}"
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
