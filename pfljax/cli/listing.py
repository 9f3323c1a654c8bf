"""What there is to choose from, as text for `pfljax list` and the README's table."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping

from pfljax import algorithms, registry

KINDS = ("algorithms", "models", "datasets", "partitions")
EXAMPLE = "twonn on 28 x 28 images, 199,210 parameters"  # whose bytes the table gives


def known(kind: str) -> Mapping[str, Callable]:
    """The registry of a kind, by name."""
    if kind == "algorithms":
        return algorithms.methods()
    if kind == "models":
        from pfljax.models import MODELS

        return MODELS
    from pfljax import data

    return data.DATASETS if kind == "datasets" else data.PARTITIONS


def listing(kind: str) -> str:
    """A line a name: what it is and its options with their defaults."""
    lines = []
    factories = known(kind)
    width = 1 + max(map(len, factories))
    for name, factory in sorted(factories.items()):
        source = sys.modules[factory.__module__] if kind == "algorithms" else factory
        what = (inspect.getdoc(source) or "").split("\n")[0]
        options = ", ".join(_option(p) for p in registry.options(factory).values())
        lines.append(f"{name:{width}} {what}")
        if options:
            lines.append(f"{'':{width}}   {options}")
    if kind == "datasets":
        lines.append(f"{'':{width}} any of them: every=1, keeps one row of so many")
    return "\n".join(lines)


def _option(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty:
        return parameter.name
    shown = default.__name__ if callable(default) else repr(default)
    return f"{parameter.name}={shown}"


def methods_table() -> str:
    """Markdown: each method's paper, what is kept, bytes a client and round."""
    rows = [
        "| method | paper | server keeps | client keeps | down | up |",
        "|---|---|---|---|---|---|",
    ]
    for name, factory in sorted(algorithms.methods().items()):
        paper, server, client = _header(sys.modules[factory.__module__].__doc__ or "")
        down, up = _bytes(factory)
        rows.append(f"| `{name}` | {paper} | {server} | {client} | {down:,} | {up:,} |")
    return "\n".join(rows)


def _header(doc: str) -> tuple[str, str, str]:
    """(paper as a link, server's state, client's state) of a method's docstring."""
    link = re.search(r"https?://\S*[^\s.,]", doc)
    table = re.search(r"Server\s+(.+?)\s{2,}Client\s+(.+)", doc)
    if link is None or table is None:
        raise ValueError(f"a method's docstring needs a link and the table: {doc!r}")
    paper = " ".join(doc[: link.start()].split()).rstrip(",")
    return f"[{paper}]({link.group()})", table.group(1), table.group(2).strip()


def _bytes(factory: Callable) -> tuple[int, int]:
    """Bytes down and up of one client in one round, on the example model."""
    from pfljax import models
    from pfljax.core.communication import traffic_of
    from pfljax.core.types import Local

    task = models.task(models.MODELS["twonn"](10), (28, 28))
    algorithm = factory(task, Local(learning_rate=0.1, batch_size=1))
    return traffic_of(algorithm, task, num_clients=1, input_shape=(28, 28))
