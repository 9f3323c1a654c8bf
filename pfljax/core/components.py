"""`Component`, a name with options, and its text on the command line.

The name is a known one, or that of one's own function: "path/to/file.py:function".
"""

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
# "file.py:function" or "package.module:function", and a colon if options follow.
OWN = re.compile(r"\s*((?:[^:]*[./][^:]*|__main__):[A-Za-z_]\w*)\s*(?::|$)")
QUOTED = re.compile(r"""(?<==)\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")  # a value


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Component:
    """A name with options, the value of a setting; equal to the component of its text.

    The component of a factory, such as `ditto(lam=1.0)`, can be called:
    `ditto(lam=1.0)(task, local)` is `ditto(task, local, lam=1.0)`.
    """

    name: str
    args: tuple[tuple[str, Any], ...]  # sorted by name
    build: Callable[..., Any] | None = dataclasses.field(compare=False)

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        build: Callable[..., Any] | None = None,
    ) -> None:
        pairs = []
        for key, value in dict(options).items():
            # Components are hashed, and a list cannot be.
            pairs.append((key, tuple(value) if isinstance(value, list) else value))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "args", tuple(sorted(pairs)))
        object.__setattr__(self, "build", build)

    @property
    def options(self) -> dict[str, Any]:
        """The options by name."""
        return dict(self.args)

    @property
    def short_name(self) -> str:
        """The name, of one's own function without its file."""
        return self.name.rpartition(":")[2]

    def with_options(self, options: Mapping[str, Any]) -> "Component":
        """A component with these options in addition; they replace its own."""
        return Component(self.name, self.options | dict(options), self.build)

    def __call__(self, *args: Any, **context: Any) -> Any:
        """Calls the factory with these arguments and the options."""
        if self.build is None:
            raise TypeError(f"{self} is a name alone; call the factory of that name")
        return self.build(*args, **context, **self.options)

    def __str__(self) -> str:
        pairs = ",".join(f"{key}={_write(value)}" for key, value in self.args)
        return f"{self.name}:{pairs}" if pairs else self.name

    def __repr__(self) -> str:
        pairs = ", ".join(f"{key}={value!r}" for key, value in self.args)
        return f"{self.short_name}({pairs})"


def is_own(name: str) -> bool:
    """Whether the name is that of one's own function, as `core.own` finds it."""
    return ":" in name


def name_of(factory: Callable) -> str:
    """The name of what a factory makes: "package.module:function" of one's own."""
    module = factory.__module__
    if module.partition(".")[0] == __name__.partition(".")[0]:
        return factory.__name__
    # A module of no package is found by its file, unless it is the program.
    file = getattr(sys.modules.get(module), "__file__", None)
    is_alone = "." not in module and module != "__main__"
    return f"{file if is_alone and file else module}:{factory.__name__}"


def parse(text: str) -> Component:
    """The component of a text: "name" or "name:key=value,key=(value,value)".

    A value with commas in it is quoted: "name:key='a,b'".
    """
    own = OWN.match(text)
    name, _, pairs = text.partition(":")
    if own:
        name, pairs = own[1], text[own.end() :]
    if not name.strip():
        raise ValueError(f"{text!r} has no name; expected name or name:key=value")
    if name.strip().endswith(".py"):
        raise ValueError(f"{text!r} names no function; write {name.strip()}:FUNCTION")
    kwargs = {}
    for pair in filter(None, _parts(pairs)):
        key, _, value = map(str.strip, pair.partition("="))
        if not key or not value:
            raise ValueError(f"{text!r} is not of the form name:key=value,key=value")
        if key in kwargs:
            raise ValueError(f"{text!r} gives {key} twice; give it once")
        kwargs[key] = literal(value)
    return Component(name.strip(), kwargs)


def convert(value: str | Component) -> Component:
    """The component of a text; any other value as it is.

    Raises:
      ValueError: the text is none, or the value is the factory of a component.
    """
    if inspect.isfunction(value):
        name = value.__name__
        raise ValueError(
            f"expected a component, got the function {name}; write {name}() or "
            f"{name_of(value)!r}"
        )
    return parse(value) if isinstance(value, str) else value


def convert_all(value: str | Component | list | tuple | None) -> tuple[Component, ...]:
    """The components of a sequence, of one, or of a text with spaces or commas."""
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list | tuple):
        value = [] if value is None else [value]
    components: list[Component] = []
    for part in value:
        texts = _split(part) if isinstance(part, str) else [part]
        components += map(convert, texts)
    return tuple(components)


def _split(text: str) -> list[str]:
    """The texts of several components with commas between them.

    "cnn,mlp:hidden=8,bias=True" has two of them: "bias=True" is an option.
    """
    texts: list[str] = []
    for part in _parts(text):
        name, equals, _ = part.partition("=")
        is_option = bool(equals) and ":" not in name
        if texts and is_option:
            texts[-1] += f",{part}"
        else:
            texts.append(part)
    return texts


def literal(text: str) -> Any:
    """The number, bool, None or tuple that the text is in Python, else the text.

    Raises:
      ValueError: it is another Python value, such as a dict.
    """
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    except (TypeError, MemoryError, RecursionError):
        # Python read it as far as a dict with a list for a key, or too many brackets.
        value = {}
    parts = value if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(part, bool | int | float | str | None) for part in parts):
        raise ValueError(
            f"{text!r} is no value of an option; expected a number, a text, True, "
            "False, None, or several in parentheses"
        )
    # Components are hashed, and a list cannot be.
    return tuple(value) if isinstance(value, list) else value


def _parts(text: str) -> list[str]:
    """The parts of a text between commas outside parentheses and quoted values."""
    masked = QUOTED.sub(lambda found: "." * len(found[0]), text)
    parts = []
    start = 0
    for comma in COMMA_OUTSIDE_PARENTHESES.finditer(masked):
        parts.append(text[start : comma.start()])
        start = comma.end()
    return [*parts, text[start:]]


def _write(value: Any) -> str:
    """A value as `parse` reads it; a text is quoted if it would be read otherwise."""
    text = str(value)
    if not isinstance(value, str):
        return text
    try:
        is_read = literal(text) == text and _parts(text) == [text.strip()]
    except ValueError:
        is_read = False
    return text if is_read else repr(text)
