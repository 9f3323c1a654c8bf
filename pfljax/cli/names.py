"""`pfljax list`: the names to choose from, and all that is said of one."""

import sys
from typing import Annotated, Literal

from tyro.conf import Positional, arg


def list_(
    kind: Positional[
        Literal[
            "algorithms",
            "models",
            "datasets",
            "partitions",
            "selections",
            "channels",
            "aggregations",
            "profiles",
            "modes",
            "schedules",
            "optimizers",
            "server_optimizers",
            "noises",
            "logs",
        ]
    ],
    name: Annotated[
        Positional[str | None], arg(help="One of them, told whole; None is all.")
    ] = None,
    markdown: Annotated[bool, arg(help="The table of methods.")] = False,
) -> None:
    """Prints names to choose from, with their options; or all of one name.

    Such as: pfljax list algorithms
    """
    from pfljax.cli import listing

    if name is not None:
        print(listing.whole(kind, name))
        return
    print(listing.methods_table() if markdown else listing.listing(kind))
    for error in listing.broken(kind):
        print(error, file=sys.stderr)
