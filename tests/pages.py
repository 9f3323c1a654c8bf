"""The code blocks of the README and the guides, run in order as a reader would."""

import glob
import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import tiny
from checkout import ROOT

README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = ("python", "sh")  # "bash" is what no test can run


class Block(NamedTuple):
    """A block of code of a page."""

    place: str  # page:line
    language: str
    file: str  # that it is written to, in its title; "" for none
    code: str


def blocks(page):
    """The blocks of a page, in order."""
    text = page.read_text("utf-8")
    several = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language, title, code = match.groups()
        file = re.search(r'title="(.*?)"', title)
        place = f"{page.name}:{line}"
        several.append(Block(place, language, file[1] if file else "", code))
    return several


def run(several, names):
    """Runs blocks in the current folder; Python's share `names`. How many ran."""
    for block in several:
        if block.file:
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
    runnable = [block for block in several if block.language in RUN]
    for block in runnable:
        if block.language == "python":
            exec(compile(block.code, block.place, "exec"), names)
            continue
        for words in commands(block.code):
            _command(words, block.place)
    return len(runnable)


def commands(code):
    """The words of each command of a shell block, without comments."""
    lines = code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def _command(words, place):
    """Runs `pfljax ...` in this process, or sets a variable."""
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        os.environ[name] = value
        return
    assert words[0] == "pfljax", f"{place}: {words[0]} is not run here"
    given = [path for word in words[1:] for path in glob.glob(word) or [word]]
    code, _, errors = tiny.main(*given)
    assert not code, f"{place}: {shlex.join(words)}\n{errors}"
