"""The captions of figures and the notes of tables, read from captions.toml."""

import tomllib
from importlib import resources

_FILE = resources.files("pfljax.report").joinpath("captions.toml")
_TEXTS = tomllib.loads(_FILE.read_text("utf-8"))
CAPTIONS: dict[str, str] = _TEXTS["figures"]  # by the name of the figure
NOTES: dict[str, str] = _TEXTS["tables"]  # by the title of the table
COLUMN_NOTES: dict[str, str] = _TEXTS["columns"]  # by the column of the overview
