"""The commands that read the models of a run."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from pfljax.cli.options import RunFolder
from pfljax.runs.landscape_options import LandscapeOptions
from pfljax.runtime.terminal import show
from pfljax.runtime.words import count_noun


def export(
    run: Positional[RunFolder],
    client: Annotated[
        str | None,
        arg(
            help="A training client, by name or number. None exports the server's "
            "model. Clients that --unseen holds out have no state."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        arg(help="The file. The default is RUN/client-K.npz or RUN/server.npz."),
    ] = None,
    format: Annotated[
        Literal["npz", "safetensors"],
        arg(help="The format of the file; --out has a name that ends in it."),
    ] = "npz",
) -> None:
    """Writes the personal model of a client, or the server's model, as named arrays.

    Example: pfljax export RUN --client 3
    """
    from pfljax.runs import folder

    folder.read_config(run)  # refuses a folder that is not a run
    name = "server" if client is None else f"client-{client}"
    file = out or run / f"{name}.{format}"
    if file.suffix != f".{format}":
        raise ValueError(
            f"--out is {file} and --format {format}; expected a name that ends in "
            f".{format}"
        )
    from pfljax.runtime import devices
    from pfljax.simulate.export import export as export_model

    devices.check()
    number = _find_client(run, client)
    for key, array in export_model(run, number, file).items():
        show(f"{key:40} {array.dtype}{list(array.shape)}")
    if number is not None:
        of_data = folder.read_partition(run)["clients"][number]
        show(f"client {number} of this run is client {of_data} of the data")
    show(f"written to {file}")


def _find_client(run: Path, client: str | None) -> int | None:
    """The number of a training client, given by its name or number."""
    from pfljax.core.requirements import find
    from pfljax.runs import folder

    if client is None:
        return None
    if client.lstrip("-").isdecimal():
        return int(client)
    names = folder.read_partition(run).get("client_names", ())
    return find("client", {name: k for k, name in enumerate(names)}, client)


def landscape(
    run: Positional[RunFolder], options: Annotated[LandscapeOptions, arg(name="")]
) -> None:
    """Draws the loss around the models of a run, or between them.

    Example: pfljax landscape RUN --kind pairs
    """
    from pfljax.landscape.kinds import command
    from pfljax.runtime import devices

    devices.use_compile_cache()
    devices.check()
    show(command.write_landscape(run, **vars(options)))


def predict(
    run: Positional[RunFolder],
    client: Annotated[
        str | None,
        arg(help="A training client, by name or number. None is all of them."),
    ] = None,
    out: Annotated[
        Path | None,
        arg(help="An .npz or .csv file. The default is RUN/predictions.npz."),
    ] = None,
) -> None:
    """Writes predictions of the personal models, and confusion matrices of classes.

    Example: pfljax predict RUN --client 3 --out predictions.csv
    """
    from pfljax.runs import folder

    folder.read_config(run)  # refuses a folder that is not a run
    name = "predictions" if client is None else f"predictions-{client}"
    file = out or run / f"{name}.npz"
    if file.suffix not in (".npz", ".csv"):
        raise ValueError(f"--out is {file}; expected a name that ends in .npz or .csv")
    from pfljax.runtime import devices
    from pfljax.simulate import personal
    from pfljax.simulate.export import check_file

    devices.check()
    check_file(file)
    columns = personal.predictions(run, client=_find_client(run, client))
    written = personal.write(columns, file)
    clients = len(columns["clients"])
    examples = count_noun(len(columns["example"]), "test example")
    who = count_noun(clients, "client") if client is None else f"client {client}"
    score = ""
    if personal.CONFUSION in columns:
        hits = (columns["prediction"] == columns["label"]).mean()
        score = f", accuracy {hits:.4f}"
    show(f"{examples} of {who}{score}")
    show(f"written to {' and '.join(map(str, written))}")
