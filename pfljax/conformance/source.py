"""The law of a method's file: what is read of its source."""

import ast
import inspect
import io
import tokenize
from pathlib import Path

import chex

from pfljax.conformance.play import Played

TABLE = ("Server ", "Client ", "Message ", "Upload ", "https://")


def one_file_one_word_one_paper(played: Played) -> None:
    """File, function and key are one word; a table, a link, under 100 code lines."""
    name = played.case.name
    # Beneath what decorates it.
    factory = inspect.unwrap(played.factory)
    path = Path(inspect.getsourcefile(factory) or "")
    source = path.read_text()
    chex.assert_equal(path.stem, name)
    chex.assert_equal(factory.__name__, name)
    module = ast.parse(source)
    docstring = ast.get_docstring(module) or ""
    missing = [word for word in TABLE if word not in docstring]
    assert not missing, f"the docstring of {path} lacks {missing}"
    count = _code_lines(source)
    assert count < 100, f"{path} has {count} code lines"


def _code_lines(source: str) -> int:
    """Lines with code: no blanks, comments or docstrings."""
    code = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
    lines = set()
    # Not by the first letters of a line: a docstring may hold a "#", or code.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in code:
            line, _ = token.start
            lines.add(line)
    return len(lines)
