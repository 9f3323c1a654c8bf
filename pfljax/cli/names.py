"""`pfljax list`: the names to choose from, and everything about one name."""

import sys
from typing import Annotated, Literal

from tyro.conf import Positional, arg

KINDS = {
    "algorithms": "methods of personalised federated learning",
    "models": "models, and groups of models for --models",
    "datasets": "data sets",
    "partitions": "how examples are divided over clients",
    "noises": "wrong training labels",
    "selections": "who takes part in a round",
    "profiles": "the clients' devices, for virtual seconds",
    "modes": "synchronous and asynchronous rounds",
    "channels": "what happens to uploads",
    "aggregations": "robust aggregations",
    "optimizers": "local optimizers",
    "server_optimizers": "optimizers of the server's model",
    "schedules": "schedules of the learning rate",
    "logs": "logs for other tools",
}


def list_(
    kind: Annotated[
        Positional[
            Literal[
                "kinds",
                "algorithms",
                "models",
                "datasets",
                "partitions",
                "noises",
                "selections",
                "profiles",
                "modes",
                "channels",
                "aggregations",
                "optimizers",
                "server_optimizers",
                "schedules",
                "logs",
            ]
        ],
        arg(help="A kind of name."),
    ] = "kinds",
    name: Annotated[
        Positional[str | None], arg(help="A name, for everything about it.")
    ] = None,
    markdown: Annotated[bool, arg(help="Print the table of methods.")] = False,
) -> None:
    """Prints the names to choose from with their options, or all about one name.

    Example: pfljax list algorithms
    """
    from pfljax.cli import listing

    if kind == "kinds":
        print(listing.kinds_table(KINDS))
        return
    if name is not None:
        print(listing.whole(kind, name))
        return
    print(listing.methods_table() if markdown else listing.listing(kind))
    for error in listing.list_broken(kind):
        print(error, file=sys.stderr)
