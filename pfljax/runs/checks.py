"""Checks settings before anything is compiled, and completes them."""

from collections.abc import Callable

from pfljax.core import annotations, factories, requirements
from pfljax.core.components import Component, is_own
from pfljax.runs import components, conflicts
from pfljax.runs.settings import FIELDS, Experiment, label


def check(
    experiment: Experiment, own_model: bool = False, own_data: bool = False
) -> None:
    """Raises a ValueError that names the wrong setting and what was expected.

    Args:
      experiment: the settings.
      own_model: a model is given in Python, and `model` is only its name.
      own_data: a federation is given in Python, and `dataset` and `partition` are only
        names.
    """
    _check_each(experiment)
    _check_model(experiment, own_model)
    # Imported here: methods load JAX, which a reader of a run folder does not need.
    from pfljax import algorithms

    method = experiment.algorithm
    factory = algorithms.method(method.name)
    _check_option_names(method.name, factory)
    factories.check("algorithm", method, factory)
    defaults = {key: each.default for key, each in factories.options(factory).items()}
    for name, value in (defaults | method.options).items():
        if not isinstance(value, annotations.SCALARS):
            raise ValueError(f"{name} is {value!r}, which config.json cannot hold")
    from_python = ["model"] if own_model else []
    if own_data:
        from_python += ["dataset", "partition"]
    components.check(experiment, from_python)
    # Last: conflicts assume that all names are known.
    check_values(experiment)


def _check_option_names(algorithm: str, factory: Callable) -> None:
    """Raises a ValueError for an option that has the name of a setting.

    A sweep could not tell the two apart.
    """
    for name in factories.options(factory):
        if name in FIELDS:
            raise ValueError(
                f"the method {algorithm!r} has an option {name!r}, which is the name "
                "of a setting; give it another name"
            )


def check_values(experiment: Experiment) -> None:
    """Checks types, ranges and conflicts only, for which a reader needs no JAX."""
    _check_each(experiment)
    for conflict in conflicts.conflicts(experiment):
        raise ValueError(conflict)


def _check_each(experiment: Experiment) -> None:
    """Checks the type and range of each setting."""
    for name, parameter in annotations.parameters(Experiment).items():
        factories.check_value(name, getattr(experiment, name), parameter)


def names_own_model(model: Component) -> bool:
    """Whether it is the name alone of a model that is given in Python."""
    known = {"auto", *components.find_factories("model")}
    return model.name not in known and not is_own(model.name)


def _check_model(experiment: Experiment, own: bool) -> None:
    model = experiment.model
    if own and experiment.models:
        raise ValueError(
            "models are set and a task is given; give one of the two: a task is the "
            "one model of all clients"
        )
    if own and not names_own_model(model):
        raise ValueError(
            f"model is {str(model)!r}, which makes a model, but a task is given; give "
            "your model another name, such as model='mine'"
        )
    if not own and names_own_model(model):
        known = components.find_factories("model")
        said = requirements.unknown("model", known, model.name)
        raise ValueError(
            f"{said}; for your own, give path/to/file.py:function, or "
            "run(experiment, task=...) in Python"
        )


def resolve(experiment: Experiment, name: str | None = None) -> Experiment:
    """The same run with all options of the method, a label and a folder.

    `name` is the folder of a run without `out`; None is `experiment.folder`.
    """
    from pfljax import algorithms

    method = experiment.algorithm
    factory = algorithms.method(method.name)
    whole = Component(method.name, factories.defaults(factory) | method.options)
    resolved = components.convert_to_floats(
        experiment.replace(algorithm=factories.convert_to_floats(whole, factory))
    )
    return resolved.replace(
        label=label(resolved), out=experiment.out or name or resolved.folder
    )
