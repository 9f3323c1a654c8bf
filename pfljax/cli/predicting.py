"""`pfljax predict`: the predictions of a run's models on the test examples."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from pfljax.cli.commands import RunFolder
from pfljax.runtime.words import count_noun


def predict(
    run: Positional[RunFolder],
    client: Annotated[
        int | None, arg(help="The number of a client that trains. None is all.")
    ] = None,
    out: Annotated[
        Path | None,
        arg(help="An .npz or .csv file. The default is RUN/predictions.npz."),
    ] = None,
) -> None:
    """Writes predictions of the personal models, and confusion matrices.

    Example: pfljax predict RUN --client 3 --out predictions.csv
    """
    from pfljax.runs import folder

    folder.read_config(run)  # refuses what is not a run
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
    examples = count_noun(len(columns["row"]), "test example")
    who = count_noun(clients, "client") if client is None else f"client {client}"
    print(f"{examples} of {who}, accuracy {hits:.4f}")
    print(f"written to {' and '.join(map(str, written))}")
