"""Fills the templates of the pages: each is one self-contained document.

CSS, script and images are in the page itself, and its policy forbids it to load or to
run anything else; all text is escaped. The script only sorts tables.
"""

import base64
import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jinja2
import numpy as np

from pfljax.report import formats
from pfljax.report.columns import Table
from pfljax.report.runs import number

EMPTY = "–"
LONG = 40  # characters; longer ones go over several lines
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?( ± .*)?")


class Picture(NamedTuple):
    """A PNG with its caption."""

    name: str  # the stem of its file
    png: bytes
    width: int  # CSS pixels
    caption: str


class Card(NamedTuple):
    """A key figure."""

    title: str
    value: str
    note: str = ""


class Grid(NamedTuple):
    """A table that sorts by its headings; nothing is shown of one without rows."""

    header: Sequence[str]
    kinds: Sequence[str]  # of each column: "number", "long" or ""
    rows: Sequence[Sequence[formats.Cell]]
    caption: str


def render(template: str, **content: Any) -> str:
    """The page of a template, which shows `content`.

    Raises:
        jinja2.UndefinedError: the template asks for what `content` lacks.
    """
    return _environment().get_template(template).render(content)


def grid(
    header: Sequence[str], rows: Iterable[Iterable[Any]], caption: str = ""
) -> Grid:
    """A table of values, or of cells that are marked already."""
    cells = []
    for row in rows:
        cells.append([_cell(value) for value in row])
    kinds = []
    for i in range(len(header)):
        texts = [row[i].text for row in cells]
        kinds.append(_kind(texts))
    return Grid(
        header=header,
        kinds=kinds,
        rows=cells,
        caption=caption,
    )


def comparison_grid(table: Table, before: str = "") -> Grid:
    """A comparison table, best and second of each column marked.

    The second column stands below the method's name, `before` it a word: the numbers
    come next, where a narrow window still shows the first of them.
    """
    name, _, *titles = formats.headings(table)
    rows = []
    for method, second, *numbers in formats.cells(table):
        note = f"{before} {second.text}".strip()
        rows.append([method._replace(note=note), *numbers])
    return grid([name, *titles], rows, table.caption)


def typed(value: Any) -> str:
    """A value as a reader types it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def counted(values: Iterable[str]) -> str:
    """Texts, the same ones once with their number."""
    texts = []
    for text, count in Counter(values).items():
        if count > 1:
            text = f"{count} × {text}"
        texts.append(text)
    return ", ".join(texts)


def percent(share: Any) -> str:
    """A share as percent, a dash where there is none."""
    return fixed(100 * number(share), 2)


def fixed(value: float, digits: int) -> str:
    """A number with `digits` decimals, a dash for NaN."""
    if np.isnan(value):
        return EMPTY
    return f"{value:.{digits}f}"


# Once a process: an environment keeps the templates that it has compiled.
@functools.cache
def _environment() -> jinja2.Environment:
    """What all templates know."""
    loader = jinja2.PackageLoader("pfljax.report")
    environment = jinja2.Environment(
        loader=loader,
        # Labels and commands are a user's: they may hold any letters.
        autoescape=True,
        # A name that is misspelt in a template is an error, not an empty field.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = _base64
    environment.filters["percent"] = percent
    environment.filters["sha256"] = _sha256
    environment.filters["typed"] = typed
    environment.globals["zip"] = zip
    # No templates: the policy of a page knows its script by the hash of these letters.
    sources = {"style": "page.css", "script": "page.js"}
    for name, file in sources.items():
        source, _, _ = loader.get_source(environment, file)
        environment.globals[name] = source
    return environment


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _sha256(text: str) -> str:
    """The hash by which the page's policy knows its own script."""
    digest = hashlib.sha256(text.encode()).digest()
    return _base64(digest)


def _cell(value: Any) -> formats.Cell:
    if isinstance(value, formats.Cell):
        return value
    return formats.Cell(typed(value))


def _kind(texts: Sequence[str]) -> str:
    """The kind of a column: numbers are set right, long texts wrap."""
    filled = [text for text in texts if text not in ("", EMPTY)]
    numbers = [text for text in filled if not text.startswith(formats.NOT_REACHED)]
    # A column of dashes is one of numbers that nobody has.
    if not filled and EMPTY in texts:
        return "number"
    if numbers and all(NUMBER.fullmatch(text) for text in numbers):
        return "number"
    if any(len(text) > LONG for text in filled):
        return "long"
    return ""
