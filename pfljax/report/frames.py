"""pandas, imported when a table is made: that takes half a second."""

from collections.abc import Iterable, Sequence
from typing import Any

from pfljax.runtime.csv_text import cell

# A pandas.DataFrame. pandas' own annotations lose the type of every second expression.
Frame = Any


def make_frame(rows: Iterable[Any], columns: Sequence[str] | None = None) -> Frame:
    """A table of rows, which are dictionaries or lists."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)  # type: ignore[arg-type]


def to_csv(frame: Frame) -> str:
    """A table as CSV, in which a missing number is an empty cell."""
    from pandas.api.types import is_numeric_dtype

    texts = [name for name in frame if not is_numeric_dtype(frame[name])]
    cells = frame.assign(**{name: frame[name].map(cell) for name in texts})
    return cells.rename(columns=cell).to_csv(index=False)
