"""What there is to choose from, as text for `pfljax list` and the table of docs."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pfljax import algorithms, registry
from pfljax.runs.components import factories

NOTES = {  # what holds for all of a kind, as its last line
    "datasets": "any of them: every=1, keeps one row of so many",
    "optimizers": "the learning rate is --lr; sgd takes --momentum and --weight-decay",
    "server_optimizers": "or one of `pfljax list optimizers`: sgd:learning_rate=1.0",
}
EXAMPLE = "twonn on 28 x 28 images, 199,210 parameters"  # whose bytes the table gives


def kinds_table(kinds: Mapping[str, str]) -> str:
    """A line for each kind: how many names it has, and what they are."""
    lines = [
        f"{kind:18}{len(factories(kind.removesuffix('s'))):4}  {about}"
        for kind, about in kinds.items()
    ]
    return "\n".join([*lines, "", "`pfljax list KIND` lists the names of a kind."])


def list_broken(kind: str) -> list[str]:
    """A line for each name of a kind that cannot be chosen: a method's broken file."""
    if kind != "algorithms":
        return []
    _, errors = algorithms.importable()
    return errors


def listing(kind: str) -> str:
    """A line a name: what it is and its options with their defaults.

    Methods stand under their families, which are what a client keeps.
    """
    by_name = factories(kind.removesuffix("s"))
    width = 1 + max(map(len, by_name))
    if kind == "algorithms":
        return _by_family(by_name, width)
    lines = []
    for name, factory in sorted(by_name.items()):
        lines += _entry(name, factory, factory, width)
    if kind in NOTES:
        lines.append(f"{'':{width}} {NOTES[kind]}")
    if kind == "models":
        lines += ["", *_groups_of_models()]
    return "\n".join(lines)


def whole(kind: str, name: str) -> str:
    """All that is said of one name: its paper, what it does, and each of its options.

    Raises:
      ValueError: the kind has no such name.
    """
    factory = registry.find(
        kind.removesuffix("s"), factories(kind.removesuffix("s")), name
    )
    texts = [inspect.getdoc(factory) or name]
    if kind == "algorithms":
        texts.insert(0, inspect.getdoc(sys.modules[factory.__module__]) or "")
    options = [_option(option) for option in _options(factory).values()]
    texts.append(f"{name}: {', '.join(options)}" if options else name)
    return "\n\n".join(filter(None, texts))


def _groups_of_models() -> list[str]:
    """A line a group of architectures, in brackets as families are: its models."""
    from pfljax.models.model_groups import GROUPS
    from pfljax.report.settings import ASSUMED

    return [
        f"[{name}] for --models{ASSUMED.get(name, '')}: {' '.join(members)}"
        for name, members in GROUPS.items()
    ]


def _by_family(factories: Mapping[str, Callable], width: int) -> str:
    """A block a family, with its heading; methods of no family come first."""
    families = algorithms.families()
    blocks = []
    for family in sorted(set(families.values())):
        lines = [_heading(family)] if family else []
        for name in sorted(factories):
            if families[name] == family:
                factory = factories[name]
                # The file's docstring tells of the paper, the function's of options.
                file = sys.modules[factory.__module__]
                lines += _entry(name, factory, file, width)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _heading(family: str) -> str:
    """The family's name, and what its clients keep."""
    package = importlib.import_module(f"pfljax.algorithms.{family}")
    return f"[{family}] {_first_line(package)}".rstrip()


def _entry(name: str, factory: Callable, source: Any, width: int) -> list[str]:
    """The name with the first line of the source's docstring, and its options."""
    lines = [f"{name:{width}} {_first_line(source)}"]
    options = [_option(option) for option in _options(factory).values()]
    if options:
        lines.append(f"{'':{width}}   {', '.join(options)}")
    return lines


def _options(factory: Callable) -> dict[str, inspect.Parameter]:
    """What may be given; functions of optax have options that are positional."""
    from pfljax.core import optimizers, schedules

    if factory in optimizers.known_of_optax().values():
        return optimizers.options_of_optax(factory)

    if factory in schedules.list_schedules().values():
        return schedules.options(factory)
    return registry.options(factory)


def _first_line(source: Any) -> str:
    """The first line of a docstring; empty without one."""
    text = inspect.getdoc(source) or ""
    return text.partition("\n")[0]


def _option(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty:
        return parameter.name
    shown = default.__name__ if callable(default) else repr(default)
    return f"{parameter.name}={shown}"


def methods_table() -> str:
    """Markdown: each method's paper, what is kept, bytes a client and round."""
    rows = [
        "| method | family | paper | server keeps | client keeps | down | up |",
        "|---|---|---|---|---|---|---|",
    ]
    families = algorithms.families()
    for name, factory in sorted(factories("algorithm").items()):
        file = sys.modules[factory.__module__]
        paper, server, client = _header(file.__doc__ or "")
        down, up = _bytes(factory)
        cells = (
            f"`{name}`",
            families[name],
            paper,
            server,
            client,
            f"{down:,}",
            f"{up:,}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _header(doc: str) -> tuple[str, str, str]:
    """(paper as a link, server's state, client's state) of a method's docstring."""
    link = re.search(r"https?://\S*[^\s.,]", doc)
    # What a server keeps may take two lines.
    table = re.search(r"Server\s+((?s:.+?))\s{2,}Client\s+(.+)", doc)
    if link is None or table is None:
        raise ValueError(f"a method's docstring needs a link and the table: {doc!r}")
    paper = " ".join(doc[: link.start()].split()).rstrip(",")
    server = " ".join(table.group(1).split())
    return f"[{paper}]({link.group()})", server, table.group(2).strip()


def _bytes(factory: Callable) -> tuple[int, int]:
    """Bytes down and up of one client of 100 in one round, on the example model."""
    from pfljax import models
    from pfljax.channel import count_traffic
    from pfljax.core.types import Local

    local = Local(learning_rate=0.1, batch_size=1)
    task = models.task(models.MODELS["twonn"](10), (28, 28))
    algorithm = factory(task, local)
    if algorithm.linear:
        task = models.task(models.MODELS["logistic"](10), (28, 28))
        algorithm = factory(task, local)
    return count_traffic(algorithm, task, num_clients=100, input_shape=(28, 28))
