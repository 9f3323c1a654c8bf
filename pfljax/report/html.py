"""Fills the template of a page, which is one self-contained document.

CSS, script and images are in the page itself, its policy forbids it to load or run
anything else, and all text is escaped. The script sorts tables.
"""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from pfljax.report.captions import CAPTIONS
from pfljax.report.lead import Lead
from pfljax.report.style import Figure, draw
from pfljax.report.tables import Table

CSS_PIXELS = 86  # an inch of a figure in a page
LONG = 40  # characters; a column of longer texts is wrapped
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?( ± .*)?|–|not reached.*|")


class Picture(NamedTuple):
    """An image with its caption."""

    name: str
    image: bytes
    kind: str  # "svg+xml" or "png"
    width: int  # CSS pixels
    caption: str


class Pairs(NamedTuple):
    """Names with values."""

    pairs: Mapping[str, Any]
    title: str = ""


class Cards(NamedTuple):
    """Key figures: (title, value, note)."""

    cards: Sequence[tuple[str, str, str]]


Block = str | Table | Picture | Pairs | Cards


def picture(name: str, figure: Figure, lead: Lead) -> Picture:
    """A figure as it stands in a page."""
    width = round(CSS_PIXELS * figure.get_size_inches()[0])
    caption = lead.fill(CAPTIONS[name])
    return Picture(name, draw(figure, "svg"), "svg+xml", width, caption)


def render(
    title: str,
    facts: Sequence[str],
    notices: Sequence[str],
    lead: Sequence[Block],
    folded: Mapping[str, Sequence[Block]],
) -> str:
    """The page. `folded` has the sections below the `lead`; empty ones are left out."""
    sections = [(name, _drop_empty(blocks)) for name, blocks in folded.items()]
    return _environment().get_template("page.html.j2").render(
        title=title,
        facts=facts,
        notices=notices,
        lead=_drop_empty(lead),
        folded=[(name, blocks) for name, blocks in sections if blocks],
    )  # fmt: skip


def _drop_empty(blocks: Sequence[Block]) -> list[Block]:
    """The blocks that show something."""
    return [b for b in blocks if (b.rows if isinstance(b, Table) else b and b[0])]


def format_value(value: Any) -> str:
    """A value as a reader types it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


@functools.cache
def _environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("pfljax.report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = _base64
    environment.globals["kinds"] = _kinds
    # Not templates: the policy of a page knows its script by the hash of its letters.
    style, script = (
        loader.get_source(environment, file)[0] for file in ("page.css", "page.js")
    )
    digest = hashlib.sha256(script.encode()).digest()
    environment.globals |= {"style": style, "script": script, "hash": _base64(digest)}
    return environment


def _kinds(table: Table) -> list[Markup]:
    """The class of each column: numbers are set right, long texts are wrapped."""
    classes = []
    for column in zip(*table.rows, strict=True):
        if all(NUMBER.fullmatch(text) for text in column):
            classes.append(Markup(' class="number"'))
        elif any(len(text) > LONG for text in column):
            classes.append(Markup(' class="long"'))
        else:
            classes.append(Markup(""))
    return classes


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
