"""`pfljax predict`: what a run's models say of each test row."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from pfljax.cli.commands import RunFolder
from pfljax.runtime.words import number_of


def predict(
    run: Positional[RunFolder],
    client: Annotated[
        int | None, arg(help="Client number among those that train; None is all.")
    ] = None,
    out: Annotated[
        Path | None,
        arg(help="An .npz or .csv; None is RUN/predictions.npz, or of --client."),
    ] = None,
) -> None:
    """Writes what personal models predict of test rows, and confusion matrices.

    Such as: pfljax predict RUN --client 3 --out predictions.csv
    """
    from pfljax.runs import folder

    folder.read_config(run)  # first of all it must be a run
    name = "predictions" if client is None else f"predictions-{client}"
    file = out or run / f"{name}.npz"
    if file.suffix not in (".npz", ".csv"):
        raise ValueError(f"--out is {file}; expected a name that ends in .npz or .csv")
    from pfljax.runtime import devices
    from pfljax.simulate import export as exporting
    from pfljax.simulate import personal

    devices.check()
    exporting.check_file(file)
    columns = personal.predictions(run, client=client)
    written = personal.write(columns, file)
    hits = (columns["prediction"] == columns["label"]).mean()
    clients = len(columns[personal.CONFUSION])
    rows = number_of(len(columns["row"]), "row")
    who = number_of(clients, "client") if client is None else f"client {client}"
    print(f"{rows} of {who}, {hits:.4f} of them right")
    print(f"written to {' and '.join(map(str, written))}")
