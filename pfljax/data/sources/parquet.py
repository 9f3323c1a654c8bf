"""Parquet files with a row for each example."""

from pfljax.core.factories import validate
from pfljax.core.ranges import AtLeastOne
from pfljax.data.arrays import Arrays
from pfljax.data.files import reading
from pfljax.data.sources import tables
from pfljax.data.values import Classes


@validate
def parquet(
    *,
    path: str,
    label: str = "label",
    client: str | None = None,
    split: str | None = None,
    groups: str = "",
    skip: str = "",
    classes: Classes = None,
    task: str | None = None,
    size: AtLeastOne | None = None,
) -> Arrays:
    """Loads a Parquet file; its columns and the options are those of `csv`.

    x may be one column of lists or of images as well, as Hugging Face writes them:
    [N, ...]. Images are resized to `size` x `size` pixels.
    """
    import pyarrow.parquet as pq

    file = tables.require_file(path)
    columns = tables.Columns(label, client, split, groups, skip, task)
    with reading(file, tables.EXPECTED), pq.ParquetFile(file) as table:
        # Group by group: an iterator over several keeps what it has read.
        chunks = (
            batch.to_pandas()
            for group in range(table.num_row_groups)
            for batch in table.iter_batches(tables.ROWS, row_groups=[group])
        )
        names = tables.list_class_names(table.schema_arrow)
        return tables.read(file.stem, chunks, columns, classes, names, size)
