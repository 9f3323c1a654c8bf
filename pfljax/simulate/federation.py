"""Builds the clients of an experiment."""

from collections.abc import Iterable

import numpy as np

from pfljax import data
from pfljax.core.factories import get, select_context
from pfljax.core.requirements import require
from pfljax.core.types import Task
from pfljax.data import Arrays, Federation
from pfljax.runs.settings import Experiment
from pfljax.runtime.processes import say
from pfljax.simulate import malicious

SOURCES = {  # of clients' validation or test examples that they do not hold
    "official": "all official examples",
    "official_classes": "the official examples of their classes",
    "official_own": "their official examples",
}


def build_federation(
    experiment: Experiment, federation: Federation | None = None
) -> tuple[Federation, Federation | None]:
    """The clients that train, and those that are held out or None.

    Raises:
      ValueError: too few clients train, or none has test examples.
    """
    everybody = federation
    if everybody is None:
        everybody = deal(experiment, load(experiment))
    training, unseen = _hold_out(experiment, everybody)
    is_tested = bool(np.asarray(training.test.size).any())
    expected = "a larger share, or fewer clients: no client has test examples"
    require("test", experiment.test, is_tested, expected)
    return training, unseen


def describe_split(federation: Federation) -> str:
    """On what clients are validated and tested; "" if the manifest does not say."""
    manifest = federation.manifest
    if "validation_from" not in manifest:
        return ""
    validation, test = (
        SOURCES.get(manifest[f"{part}_from"], f"{manifest[part]:.3g} of their examples")
        + _count_clients_without(federation, part)
        for part in ("validation", "test")
    )
    if manifest["validation_from"] == "clients" and not manifest["validation"]:
        validation = "no examples"
    unused = [
        f"; {count} official {part} examples are not used"
        for part, count in manifest["unused"].items()
    ]
    return f"clients validate on {validation} and test on {test}{''.join(unused)}"


def _count_clients_without(federation: Federation, part: str) -> str:
    """How many clients have no official examples of this part; "" if all have some."""
    is_official = federation.manifest[f"{part}_from"] != "clients"
    without = int(np.sum(np.asarray(federation.parts[part].size) == 0))
    if not is_official or not without:
        return ""
    return f" ({without} of {federation.num_clients} have none)"


def _last(vocab: int | tuple[int, ...]) -> int | tuple[int, ...]:
    """The last token, or that of each column."""
    if isinstance(vocab, tuple):
        return tuple(count - 1 for count in vocab)
    return vocab - 1


def describe_scaling(federation: Federation, tasks: Iterable[Task]) -> str:
    """What the models see of an example x."""
    shifted, scaled = describe_numbers(federation)
    sees = [
        scaled
        if task.vocab is None
        else f"{shifted} as tokens from 0 to {_last(task.vocab)}, which are not scaled"
        for task in tasks
    ]
    return " or ".join(dict.fromkeys(sees))


def describe_numbers(source: Federation | Arrays) -> tuple[str, str]:
    """What a model of tokens sees of x, and what a model of real numbers sees."""
    shift, scale = np.asarray(source.shift), np.asarray(source.scale)
    words = {}
    for name, value in (("shift", shift), ("scale", scale)):
        is_one = value.size == 1
        words[name] = f"{value.item():g}" if is_one else f"{name}{list(value.shape)}"
    shifted = f"(x - {words['shift']})" if shift.any() else "x"
    if (scale != 1).any():
        return shifted, f"{shifted} / {words['scale']}"
    return shifted, f"{shifted}, not scaled"


def deal(experiment: Experiment, arrays: Arrays) -> Federation:
    """Deals the examples to clients, as the settings of the experiment say."""
    partition = experiment.partition
    # The settings that `federate` takes, by their names.
    settings = select_context(data.federate, **vars(experiment))
    settings["seed"] = data_seed(experiment)
    settings["noise"] = str(experiment.noise)
    everybody = data.federate(
        arrays,
        partition.name,
        num_clients=experiment.clients,
        params=partition.options,
        **settings,
    )
    _report_left_out(everybody)
    return everybody


def load(experiment: Experiment) -> Arrays:
    """The data set; a setting `task` is an option of those that can have several."""
    source, task = experiment.dataset, experiment.task
    options = source.options
    factory = get("dataset", data.DATASETS, source.name)
    if factory is not None and task != "auto":
        options = select_context(factory, task=task) | options
    arrays = data.load(source.name, **options)
    if task not in ("auto", arrays.kind):
        raise ValueError(
            f"task is {task!r}, but the targets of {arrays.name!r} are of the kind "
            f"{arrays.kind!r}; choose task 'auto', or a data set of that task"
        )
    return arrays


def _check_poison(experiment: Experiment, everybody: Federation) -> None:
    """Refuses poisoned labels if the run would count other clients as malicious."""
    poisoned = malicious.poisoned_share(everybody)
    if not poisoned:
        return
    if experiment.unseen:
        raise ValueError(
            "noise is 'poison' and unseen is set: holding clients out would change the "
            "numbers of the malicious ones; set one of the two"
        )
    seed = everybody.manifest["seed"]
    if seed != experiment.seed:
        raise ValueError(
            f"labels were poisoned with the seed {seed}, but seed is "
            f"{experiment.seed}: other clients would count as malicious; make the "
            "federation with that seed"
        )


def _report_left_out(everybody: Federation) -> None:
    """Reports natural clients that have only test examples."""
    left_out = everybody.manifest.get("left_out")
    if left_out:
        say(
            f"{len(left_out)} of {len(left_out) + everybody.num_clients} natural "
            f"clients of {everybody.name!r} have no training examples and are left out "
            f"(first number {left_out[0]}); examples='all' deals their test examples "
            "as well"
        )


def _hold_out(
    experiment: Experiment, everybody: Federation
) -> tuple[Federation, Federation | None]:
    unseen, count = experiment.unseen, everybody.num_clients
    _check_poison(experiment, everybody)
    if not unseen:
        return everybody, None
    by_name = isinstance(unseen, str)
    held = len(everybody.find(unseen)) if by_name else int(unseen * count)
    if held == 0 or count - held < experiment.cohort:
        raise ValueError(
            f"unseen is {unseen}, which holds out {held} of {count} clients; hold out "
            f"at least 1 and leave the cohort of {experiment.cohort}"
        )
    return everybody.hold_out(unseen, data_seed(experiment))


def data_seed(experiment: Experiment) -> int:
    """The seed of the partition, and of the clients that are held out."""
    seed = experiment.data_seed
    return experiment.seed if seed is None else seed
