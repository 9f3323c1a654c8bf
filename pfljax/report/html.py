"""The elements of a page: one self-contained document, readable without its script.

CSS, script and images are in the page itself, and its policy forbids it to load or to
run anything else; all text is escaped. The script only sorts tables.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from pfljax.report import formats
from pfljax.report.columns import Table
from pfljax.report.runs import number

MARKS = {formats.BEST: "<strong>%s</strong>", formats.SECOND: "<u>%s</u>"}
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


class Section(NamedTuple):
    """A part of the page, named in its table of contents."""

    title: str
    body: str  # HTML


def document(title: str, facts: Sequence[str], sections: Iterable[Section]) -> str:
    """A whole page; `facts` are its second line. Empty sections are left out."""
    css, script = (_resource(name) for name in ("page.css", "page.js"))
    told = [section for section in sections if section.body]
    links = "".join(
        f'<li><a href="#{_slug(s.title)}">{escape(s.title)}</a></li>' for s in told
    )
    body = "\n".join(
        f'<section id="{_slug(s.title)}"><h2>{escape(s.title)}</h2>\n{s.body}</section>'
        for s in told
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{css}</style></head>\n"
        f"<body><header><h1>{escape(title)}</h1>\n"
        f'<p class="facts">{escape(" · ".join(facts))}</p></header>\n'
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n'
        f"<main>\n{body}\n</main>\n<script>{script}</script></body></html>\n"
    )


def cards(found: Iterable[Card]) -> str:
    """Key figures side by side."""
    body = "\n".join(
        f'<div><dt>{escape(c.title)}</dt><dd class="value">{escape(c.value)}</dd>'
        f'<dd class="note">{escape(c.note).replace(" %", "&nbsp;%")}</dd></div>'
        for c in found
    )
    return f'<dl class="cards">{body}</dl>' if body else ""


def note(told: str) -> str:
    """A paragraph."""
    return f'<p class="note">{escape(told)}</p>'


def comparison_grid(table: Table) -> str:
    """A comparison table: best bold, second underlined, its caption above."""
    return grid(formats.headings(table), formats.cells(table), table.caption)


def grid(
    header: Sequence[str], rows: Iterable[Iterable[Any]], caption: str = ""
) -> str:
    """A table that sorts by its headings; nothing where there are no rows."""
    table = [[_cell(value) for value in row] for row in rows]
    if not table:
        return ""
    kinds = [_kind([row[i].text for row in table]) for i in range(len(header))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(title)}</th>'
        for title, kind in zip(header, kinds, strict=True)
    )
    body = "\n".join(f"<tr>{_row(row, kinds)}</tr>" for row in table)
    sortable = ' class="sortable"' if len(table) > 1 else ""
    return (
        f'<div class="wide"><table{sortable}>{_caption(caption)}'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def pairs(mapping: Mapping[str, Any]) -> str:
    """Names and values, one pair a row."""
    body = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text(value))}</td></tr>'
        for name, value in mapping.items()
    )
    return f'<table class="pairs"><tbody>{body}</tbody></table>' if body else ""


def folded(title: str, body: str) -> str:
    """What is shown when its title is pressed; nothing where there is nothing."""
    if not body:
        return ""
    return f"<details><summary>{escape(title)}</summary>\n{body}</details>"


def figures(pictures: Iterable[Picture]) -> str:
    """Images in the page itself, side by side where they fit."""
    body = "\n".join(map(_figure, pictures))
    return f'<div class="figures">{body}</div>' if body else ""


def text(value: Any) -> str:
    """A value as a reader types it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def counted(values: Iterable[str]) -> str:
    """Texts, the same ones once with their number."""
    found = Counter(values).items()
    return ", ".join(name if n == 1 else f"{n} × {name}" for name, n in found)


def percent(share: Any) -> str:
    """A share as percent, a dash where there is none."""
    return fixed(100 * number(share), 2)


def fixed(value: float, digits: int) -> str:
    """A number with `digits` decimals, a dash for NaN."""
    return EMPTY if np.isnan(value) else f"{value:.{digits}f}"


def _resource(name: str) -> str:
    return (resources.files("pfljax.report") / name).read_text(encoding="utf-8")


def _slug(title: str) -> str:
    """A title as the name of a place in the page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _cell(value: Any) -> formats.Cell:
    return value if isinstance(value, formats.Cell) else formats.Cell(text(value))


def _kind(texts: Iterable[str]) -> str:
    """The attribute of a column's cells: numbers are set right, long texts wrap."""
    told = [t for t in texts if t not in ("", EMPTY)]
    if told and all(map(NUMBER.fullmatch, told)):
        return ' class="number"'
    return ' class="long"' if max(map(len, told), default=0) > LONG else ""


def _row(cells: Sequence[formats.Cell], kinds: Sequence[str]) -> str:
    return "".join(
        f"<td{kind}>{MARKS.get(cell.mark, '%s') % escape(cell.text)}</td>"
        for cell, kind in zip(cells, kinds, strict=True)
    )


def _caption(told: str) -> str:
    """The first sentence as a title, the rest below it."""
    if not told:
        return ""
    first, stop, rest = told.partition(". ")
    return (
        f"<caption><b>{escape(first + stop)}</b><span>{escape(rest)}</span></caption>"
    )


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode("ascii")
    return (
        f'<figure style="width: {picture.width}px">'
        f'<img alt="{escape(picture.name.replace("_", " "))}" '
        f'src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )
