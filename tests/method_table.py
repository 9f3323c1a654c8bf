"""The table of methods in docs/method_table.md: `make table` prints it."""

import re
import sys
from collections.abc import Callable

from pfljax import algorithms, models
from pfljax.channel import count_traffic
from pfljax.core.types import Local


def methods_table() -> str:
    """Each method's paper, state, and bytes per client and round, in Markdown."""
    rows = [
        "| method | family | paper | server keeps | client keeps | down | up |",
        "|---|---|---|---|---|---|---|",
    ]
    families = algorithms.families()
    for name, factory in sorted(algorithms.methods().items()):
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
    """(paper as a link, server's state, client's state) of a method's docstring.

    The paper is the paragraph with the first link, up to that.
    """
    link = re.search(r"https?://\S*[^\s.,]", doc)
    # What a server keeps may take two lines.
    table = re.search(r"Server\s+((?s:.+?))\s{2,}Client\s+(.+)", doc)
    if link is None or table is None:
        raise ValueError(f"a method's docstring needs a link and the table: {doc!r}")
    _, _, source = doc[: link.start()].rpartition("\n\n")
    paper = " ".join(source.split()).rstrip(",")
    server = " ".join(table.group(1).split())
    return f"[{paper}]({link.group()})", server, table.group(2).strip()


def _bytes(factory: Callable) -> tuple[int, int]:
    """Bytes down and up of one client of 100 in one round, on the example model."""
    local = Local(learning_rate=0.1, batch_size=1)
    task = models.task(models.MODELS["twonn"](10), (28, 28))
    algorithm = factory(task, local)
    if algorithm.linear:
        task = models.task(models.MODELS["logistic"](10), (28, 28))
        algorithm = factory(task, local)
    return count_traffic(algorithm, task, num_clients=100, input_shape=(28, 28))


if __name__ == "__main__":
    print(methods_table())
