"""What an option's annotation says: its type, and its `Range` wherever that stands.

lam: NotNegative = 0.1            loss: Literal["mean", "sum"] = "mean"
rate: NotNegative | None = None   word: str | None = None
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pfljax.registry.ranges import Range

SCALARS = (bool, int, float, str, NoneType)  # what config.json holds of an option
ANYTHING = bool | int | float | str | None
IN_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "True or False",
    "Component": "a name",
}


def parameters(factory: Callable) -> dict[str, inspect.Parameter]:
    """The parameters of a function, their annotations as objects."""
    try:
        signature = inspect.signature(factory, eval_str=True)
    except Exception:  # annotations that are texts may name anything
        signature = inspect.signature(factory)
    return dict(signature.parameters)


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type; those of `Annotated[...]` included."""
    if get_origin(kind) is Annotated:
        return alternatives(get_args(kind)[0])
    if get_origin(kind) not in (Union, UnionType):
        return (kind,)
    types: list[Any] = []
    for part in get_args(kind):
        types.extend(alternatives(part))
    return tuple(types)


def ranges(kind: Any) -> list[Range]:
    """All ranges in an annotation."""
    limits = [note for note in _notes(kind) if isinstance(note, Range)]
    for part in _parts(kind):
        limits += ranges(part)
    return limits


def fits(value: Any, kind: Any) -> bool:
    """Whether the value is of this type, where that is plain; ranges apart."""
    return any(_is_a(value, alternative) for alternative in alternatives(kind))


def broken_range(value: Any, kind: Any) -> Range | None:
    """The range that a value of this type is out of; None is in all of them."""
    if value is None:
        return None
    for limits in _notes(kind):
        if isinstance(limits, Range) and not limits.takes(value):
            return limits
    # Of a union, the ranges of another type say nothing.
    broken = [broken_range(value, part) for part in _parts(kind) if fits(value, part)]
    return broken[0] if broken and None not in broken else None


def describe(kind: Any) -> str:
    """The type in words: "a number", "a whole number or None", "'mean' or 'sum'"."""
    words = [IN_WORDS.get(name, name) for name in names(kind)]
    if IN_WORDS["float"] in words and IN_WORDS["int"] in words:
        words.remove(IN_WORDS["int"])
    return " or ".join(words)


def names(kind: Any) -> list[str]:
    """The types of a union by name, and the choices of a `Literal`."""
    texts = []
    for alternative in alternatives(kind):
        texts += _names(alternative)
    return texts


def written_type(parameter: inspect.Parameter) -> Any:
    """The type of an option as the command line and config.json take it.

    That of the default where the annotation says none, or one that is no scalar.
    """
    kinds = alternatives(parameter.annotation)
    if all(_is_scalar(kind) for kind in kinds):
        return Union[kinds]  # noqa: UP007 -- a union of what is known here alone
    if parameter.default in (None, parameter.empty):
        return ANYTHING
    return type(parameter.default)


def wants_float(parameter: inspect.Parameter) -> bool:
    """Whether the option is a float, so that 1 is 1.0 to it."""
    return type(parameter.default) is float or is_float(parameter.annotation)


def is_float(kind: Any) -> bool:
    """Whether the type has floats and no ints."""
    kinds = alternatives(kind)
    return float in kinds and int not in kinds


def _notes(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__metadata__", ())


def _parts(kind: Any) -> Iterator[Any]:
    """What an `Annotated` or a union is made of."""
    if get_origin(kind) is Annotated:
        yield get_args(kind)[0]
    elif get_origin(kind) in (Union, UnionType):
        yield from get_args(kind)


def _is_scalar(kind: Any) -> bool:
    return kind in SCALARS or get_origin(kind) is Literal


def _is_a(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return any(_is_same(value, choice) for choice in get_args(kind))
    if origin is Sequence:
        return _are_widths(value)
    if origin is Callable:
        return callable(value)
    if origin is tuple:
        item = get_args(kind)[0]
        return isinstance(value, tuple) and all(_is_a(part, item) for part in value)
    # An option that says no type takes any value.
    if kind in (Any, inspect.Parameter.empty) or not isinstance(kind, type):
        return True
    # Python's bool is an int, but True is no number of clients.
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, kind)


def _is_same(value: Any, choice: Any) -> bool:
    return type(value) is type(choice) and value == choice


def _are_widths(value: Any) -> bool:
    """Whether the value is a sequence of positive whole numbers."""
    if not isinstance(value, tuple | list):
        return False
    for width in value:
        if type(width) is not int or not 0 < width < 2**31:
            return False
    return True


def _names(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [repr(choice) for choice in get_args(kind)]
    if get_origin(kind) is Sequence:
        return ["positive whole numbers in parentheses"]
    if get_origin(kind) is tuple:
        return [f"{describe(get_args(kind)[0])}, or several with spaces between them"]
    if get_origin(kind) is Callable:
        return ["a function"]
    if kind is NoneType:
        return ["None"]
    return [kind.__name__ if isinstance(kind, type) else str(kind)]
