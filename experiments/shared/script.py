"""Makes the parameters of a script's `main` its options.

Each script ends with `script.run(main)`.
"""

from collections.abc import Callable
from typing import Annotated, Any

import tyro
from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec

from pfljax.runtime import errors


def run(main: Callable[..., Any]) -> Any:
    """What `main` returns, called with the options of the command line.

    A user's mistake and Ctrl-C end the program in one line.
    """
    with errors.in_one_line():
        return tyro.cli(main)


def _positive(texts: list[str]) -> int:
    number = int(texts[0])
    if number < 1:
        raise ValueError(f"{number}; expected at least 1")
    return number


# Refused while the options are read: a script may have run for minutes before it asks.
AT_LEAST_ONE: PrimitiveConstructorSpec = PrimitiveConstructorSpec(
    nargs=1,
    metavar="INT",
    instance_from_str=_positive,
    is_instance=lambda value: value is None or isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)
Positive = Annotated[int, AT_LEAST_ONE]
Rounds = Annotated[int | None, AT_LEAST_ONE, arg(help="In place of the scale's.")]


def several(of: Callable[[str], Any], metavar: str) -> PrimitiveConstructorSpec:
    """An option of one number or more, none negative; `of` reads one."""

    def read(texts: list[str]) -> tuple[Any, ...]:
        values = tuple(map(of, texts))
        if not values or not all(value >= 0 for value in values):
            given = " ".join(texts) or "nothing"
            raise ValueError(f"{given}; expected one or more, none below 0")
        return values

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{metavar} [{metavar} ...]",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: list(map(str, value)),
    )


SEEDS: PrimitiveConstructorSpec = several(int, "INT")
Seeds = Annotated[tuple[int, ...], SEEDS, arg(help="A run of each.")]
NUMBERS: PrimitiveConstructorSpec = several(float, "FLOAT")
Numbers = Annotated[tuple[float, ...], NUMBERS, arg(help="A row of each.")]
Out = Annotated[str | None, arg(help="Runs; else a folder of runs/.")]
Results = Annotated[str | None, arg(help="Tables; else beside this.")]
Place = Annotated[str, arg(help="Folder of results/ and figures/; else this one.")]
