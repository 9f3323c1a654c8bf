"""CSV files with a row for each example."""

from pfljax.core.factories import validate
from pfljax.data.arrays import Arrays
from pfljax.data.files import reading
from pfljax.data.sources import tables
from pfljax.data.values import Classes


@validate
def csv(
    *,
    path: str,
    label: str = "label",
    client: str | None = None,
    split: str | None = None,
    groups: str = "",
    skip: str = "",
    classes: Classes = None,
    task: str | None = None,
) -> Arrays:
    """Loads a CSV file with a line of names; the other columns are x, f32[N, columns].

    Args:
      path: the file.
      label: the column of the labels, texts or integers from 0; or the columns of
        the targets of another task, such as "(a,b)".
      client: the column that names the client of each example.
      split: the column with "train", "test" or "validation", or 0, 1 or 2.
      groups: columns by which clients are grouped: "domain", or "(domain,country)".
      skip: columns that models do not see: "id", or "(id,name)".
      classes: K, if not all classes are in the file.
      task: what the targets are, as in `from_arrays`.

    Raises:
      ValueError: there is no such file or column, or a value is no number.
    """
    import pandas as pd

    file = tables.require_file(path)
    columns = tables.Columns(label, client, split, groups, skip, task)
    with (
        reading(file, tables.EXPECTED),
        pd.read_csv(file, chunksize=tables.ROWS) as chunks,
    ):
        return tables.read(file.stem, chunks, columns, classes)
