"""The law of a method's source file."""

import ast
import inspect
import io
import tokenize
from pathlib import Path

import chex

from pfljax.conformance.trial import Trial
from pfljax.core.components import is_own

HEADINGS = ("Server ", "Client ", "Message ", "Upload ", "https://")


def one_file_one_word_one_paper(trial: Trial) -> None:
    """File, function and key are one word; a table, a link, under 100 code lines."""
    name = trial.case.name
    factory = inspect.unwrap(trial.factory)
    path = Path(inspect.getsourcefile(factory) or "")
    source = path.read_text()
    if not is_own(name):
        chex.assert_equal((path.stem, factory.__name__), (name, name))
    docstring = ast.get_docstring(ast.parse(source)) or ""
    missing = [word for word in HEADINGS if word not in docstring]
    assert not missing, f"the docstring of {path} lacks {missing}"
    count = _count_code_lines(source)
    assert count < 100, f"{path} has {count} code lines"


def _count_code_lines(source: str) -> int:
    """The number of lines with code: no blanks, comments or docstrings."""
    code = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return len({token.start[0] for token in tokens if token.type in code})
