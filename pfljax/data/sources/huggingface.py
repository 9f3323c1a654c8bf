"""Data sets of Hugging Face on disk, as `save_to_disk` of its `datasets` writes them.

A folder has `state.json`, which lists files of Arrow streams, or `dataset_dict.json`,
which lists splits, each a folder of the first kind. Only pyarrow is needed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pfljax.core.factories import validate
from pfljax.core.ranges import AtLeastOne
from pfljax.data.arrays import OFFICIAL_NAMES, Arrays
from pfljax.data.files import reading
from pfljax.data.sources import tables
from pfljax.data.values import Classes

LAYOUT = (
    "expected a folder of save_to_disk, with state.json or dataset_dict.json, and a "
    "column label= beside columns of numbers, of images or of lists"
)
SPLIT = "split of the folder"  # the name of a column that the files do not have


@validate
def huggingface(
    *,
    path: str,
    label: str = "label",
    client: str | None = None,
    groups: str = "",
    skip: str = "",
    classes: Classes = None,
    task: str | None = None,
    size: AtLeastOne | None = None,
) -> Arrays:
    """Loads a data set that Hugging Face's `save_to_disk` wrote; splits are kept.

    Args:
      path: the folder.
      label: the column of the labels; names of a ClassLabel are those of the classes.
      client: the column that names the client of each example.
      groups: columns by which clients are grouped: "domain", or "(domain,country)".
      skip: columns that models do not see: "id", or "(id,name)".
      classes: K, if not all classes are in the files and the column names none.
      size: images are resized to `size` x `size` pixels; None if all have one size.
      task: what the targets are, as in `from_arrays`.

    Raises:
      ValueError: there is no such folder or column, or a split has another name.
    """
    folder = Path(path)
    if not any(
        (folder / name).is_file() for name in ("state.json", "dataset_dict.json")
    ):
        raise ValueError(f"{path} has no state.json and no dataset_dict.json; {LAYOUT}")
    with reading(folder, LAYOUT):
        splits = _list_splits(folder)
        files = [(split, file) for split in splits for file in _files(folder, split)]
        columns = tables.Columns(label, client, SPLIT, groups, skip, task)
        with _open(files[0][1]) as first:
            names = tables.list_class_names(first.schema)
        chunks = _chunks(files)
        return tables.read(folder.name, chunks, columns, classes, names, size)


def _list_splits(folder: Path) -> list[str]:
    """The splits; "" for a folder that is one data set itself."""
    if (folder / "state.json").is_file():
        return [""]
    splits = json.loads((folder / "dataset_dict.json").read_text("utf-8"))["splits"]
    for split in splits:
        if split not in OFFICIAL_NAMES:
            raise ValueError(
                f"split {split!r} is none of {', '.join(OFFICIAL_NAMES)}; rename it by "
                "DatasetDict, or give the path of one split's folder"
            )
    return splits


def _files(folder: Path, split: str) -> list[Path]:
    state = json.loads((folder / split / "state.json").read_text("utf-8"))
    return [folder / split / each["filename"] for each in state["_data_files"]]


def _open(file: Path) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(pa.memory_map(str(file)))


def _chunks(files: list[tuple[str, Path]]) -> Iterator[Any]:
    """The rows as pandas frames, with their split."""
    for split, file in files:
        with _open(file) as batches:
            for batch in batches:
                for start in range(0, len(batch), tables.ROWS):
                    rows = batch.slice(start, tables.ROWS).to_pandas()
                    yield rows.assign(**{SPLIT: split or OFFICIAL_NAMES[0]})
