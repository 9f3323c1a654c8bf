"""pandas, imported when a table is made: that takes half a second."""

from collections.abc import Iterable, Sequence
from typing import Any

# A pandas.DataFrame. pandas' own annotations lose the type of every second expression.
Frame = Any


def make_frame(rows: Iterable[Any], columns: Sequence[str] | None = None) -> Frame:
    """A table of rows, which are dictionaries or lists."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)  # type: ignore[arg-type]
