"""The commands that read or make data sets."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from pfljax.cli import options
from pfljax.runtime.terminal import show


def inspect(
    data: Annotated[
        Positional[str], arg(help="The data set, such as csv:path=study.csv.")
    ],
    settings: Any,
    out: Annotated[
        Path, arg(help="The file of the drawing: .png, .pdf or .svg.")
    ] = Path("runs/partition.png"),
) -> None:
    """Prints what pfljax reads of a data set, and draws how it is divided.

    Example: pfljax inspect csv:path=study.csv,label=ill --partition iid
    """
    from pfljax.cli.inspecting import inspect as inspect_data

    experiment = options.to_experiment(settings)
    # All clients may take part, so that any of them can be held out.
    inspect_data(experiment.replace(dataset=data, cohort=1), out)


def prepare(
    name: Annotated[
        Positional[str], arg(help="The data set, for example mnist or cifar10.")
    ],
    raw: Annotated[
        str | None,
        arg(help="A folder with the raw archives, to import them without a network."),
    ] = None,
) -> None:
    """Downloads or imports a data set and decodes it.

    Example: pfljax prepare mnist
    """
    from pfljax import data

    show(f"ready: {data.prepare(name, raw_dir=raw)}")
