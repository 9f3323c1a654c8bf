"""The components to choose from, as text for `pfljax list`."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pfljax import algorithms
from pfljax.core import factories, requirements
from pfljax.core.factories import options
from pfljax.runs.components import find_factories

KINDS = {
    "algorithms": "methods of personalised federated learning",
    "models": "models, and groups of models for --models",
    "datasets": "data sets",
    "partitions": "ways to divide the examples over the clients",
    "noises": "wrong training labels",
    "selections": "rules by which clients take part in a round",
    "profiles": "speeds and links of the clients' devices, for virtual seconds",
    "modes": "synchronous and asynchronous rounds",
    "channels": "compression, noise, loss and attacks of uploads",
    "aggregations": "robust aggregations",
    "optimizers": "local optimizers",
    "server_optimizers": "optimizers of the server's model",
    "schedules": "schedules of the learning rate",
    "logs": "formats of the log, beside metrics.jsonl",
    "losses": "losses of an example",
    "metrics": "metrics beside those that every run has",
    "augmentations": "random changes of images in local training",
}
# Of kinds that are no plurals of their settings.
SETTINGS = {"losses": "loss", "metrics": "metrics", "augmentations": "augment"}
NOTES = {  # the last line of a kind
    "datasets": "every data set takes every=N, which keeps one example in N",
    "optimizers": "the learning rate is --lr; sgd takes --momentum and --weight-decay",
    "server_optimizers": "or one of `pfljax list optimizers`: sgd:learning_rate=1.0",
}


def list_kinds() -> str:
    """One line for each kind: the number of its components, and what they are."""
    lines = [
        f"{kind:18}{len(_find_factories(kind)):4}  {about}"
        for kind, about in KINDS.items()
    ]
    return "\n".join([*lines, "", "`pfljax list KIND` lists the names of a kind."])


def list_components(kind: str) -> str:
    """The components of a kind, each with its first line and its options.

    Methods are grouped by their families.
    """
    by_name = _find_factories(kind)
    width = 1 + max(map(len, by_name))
    if kind == "algorithms":
        return _list_families(by_name, width)
    lines = []
    for name, factory in sorted(by_name.items()):
        lines += _entry(name, factory, factory, width)
    if kind in NOTES:
        lines.append(f"{'':{width}} {NOTES[kind]}")
    if kind == "models":
        lines += ["", *_list_model_groups()]
    return "\n".join(lines)


def describe(kind: str, name: str) -> str:
    """The docstrings of a component, and how it is written with its options.

    Raises:
      ValueError: the kind has no component of this name.
    """
    factory = factories.find(kind.removesuffix("s"), _find_factories(kind), name)
    texts = [inspect.getdoc(factory) or ""]
    if kind == "algorithms":
        texts.insert(0, inspect.getdoc(sys.modules[factory.__module__]) or "")
    options = ",".join(_write_options(factory))
    written = f"{name}:{options}" if options else name
    texts.append(f"With its defaults: {written}")
    return "\n\n".join(filter(None, texts))


def _find_factories(kind: str) -> Mapping[str, Callable]:
    requirements.find("kind", KINDS, kind)
    return find_factories(SETTINGS.get(kind, kind.removesuffix("s")))


def _list_model_groups() -> list[str]:
    """One line for each group of architectures: its name in brackets and its models."""
    from pfljax.models.model_groups import GROUPS
    from pfljax.report.settings import describe_widths

    return [
        f"[{name}] for --models{describe_widths(name)}: {' '.join(members)}"
        for name, members in GROUPS.items()
    ]


def _list_families(by_name: Mapping[str, Callable], width: int) -> str:
    """A block for each family with its heading; methods without one come first."""
    families = algorithms.families()
    blocks = []
    for family in sorted(set(families.values())):
        lines = []
        if family:
            package = importlib.import_module(f"pfljax.algorithms.{family}")
            lines.append(f"[{family}] {_first_line(package)}".rstrip())
        for name, factory in sorted(by_name.items()):
            if families[name] == family:
                # The file's docstring has the paper, the function's the options.
                file = sys.modules[factory.__module__]
                lines += _entry(name, factory, file, width)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _entry(name: str, factory: Callable, source: Any, width: int) -> list[str]:
    """The name with the first line of the docstring of `source`, and the options."""
    lines = [f"{name:{width}} {_first_line(source)}"]
    options = _write_options(factory)
    if options:
        lines.append(f"{'':{width}}   {', '.join(options)}")
    return lines


def _write_options(factory: Callable) -> list[str]:
    """The options of a factory as "name=default"; those of optax are positional."""
    from pfljax.core import optimizers, schedules

    known = options(factory)
    if factory in optimizers.known_of_optax().values():
        known = optimizers.options_of_optax(factory)
    elif factory in schedules.list_schedules().values():
        known = schedules.options(factory)
    return [_write_option(option) for option in known.values()]


def _first_line(source: Any) -> str:
    """The first line of a docstring; empty without one."""
    text = inspect.getdoc(source) or ""
    return text.partition("\n")[0]


def _write_option(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty:
        return parameter.name
    # Texts need no quotes; a function or a type is written by its name.
    shown = getattr(default, "__name__", default)
    return f"{parameter.name}={shown}"
