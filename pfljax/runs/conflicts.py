"""Settings that are valid alone but not together."""

from collections.abc import Iterator

from pfljax.runs.settings import Experiment

PROFILE = "choose a profile, such as --profile speed_groups"


def conflicts(experiment: Experiment) -> Iterator[str]:
    """One line for each conflict between settings that are valid alone."""
    yield from _work(experiment)
    yield from _cohort(experiment)
    yield from _models(experiment)
    yield from _dissimilarity(experiment)
    yield from _clock(experiment)
    if experiment.pin_clients and experiment.state_storage != "device":
        yield (
            "pin_clients needs state_storage 'device', but state_storage is "
            f"{experiment.state_storage!r}"
        )
    sinks = [choice.name for choice in experiment.log]
    for name in sorted(set(sinks)):
        if sinks.count(name) > 1:
            yield f"log has {name} {sinks.count(name)} times; give it once"


def _work(experiment: Experiment) -> Iterator[str]:
    if (experiment.epochs is None) == (experiment.steps is None):
        yield (
            f"epochs is {experiment.epochs} and steps is {experiment.steps}; give one "
            "of them, and None for the other: --epochs None --steps 3"
        )
    optimizer = experiment.optimizer
    if optimizer.name != "sgd" and (experiment.momentum or experiment.weight_decay):
        yield (
            f"momentum and weight_decay belong to sgd; give {str(optimizer)!r} "
            "its own options, such as adamw:weight_decay=0.01"
        )


def _cohort(experiment: Experiment) -> Iterator[str]:
    clients, cohort = experiment.clients, experiment.cohort
    if clients is not None and cohort > clients:
        yield (
            f"cohort is {cohort}, but there are {clients} clients; "
            f"choose cohort <= {clients}"
        )
    share = experiment.stragglers
    dropped = experiment.drop_stragglers
    if dropped and not share:
        yield "drop_stragglers is set, but stragglers is 0; set their share"
    if dropped and round(share * cohort) >= cohort:
        yield (
            f"stragglers is {share} and drop_stragglers is set: no client of a cohort "
            f"of {cohort} would report; choose a smaller share, or keep their work"
        )
    if share and not round(share * cohort):
        yield f"stragglers is {share}, which is no client of a cohort of {cohort}"


def _models(experiment: Experiment) -> Iterator[str]:
    if experiment.models and experiment.model.name != "auto":
        yield f"model is {str(experiment.model)!r} and models are set; set one of them"


def _dissimilarity(experiment: Experiment) -> Iterator[str]:
    if experiment.dissimilarity and experiment.models:
        yield (
            "dissimilarity and models are set, but gradients of several architectures "
            "have no distance; leave one of the two out"
        )
    if experiment.dissimilarity and experiment.pin_clients:
        yield (
            "dissimilarity and pin_clients are set, but dissimilarity needs the "
            "examples of all clients on each device; leave one of the two out"
        )


def _clock(experiment: Experiment) -> Iterator[str]:
    """Conflicts of the virtual clock and of asynchronous modes."""
    mode, deadline = str(experiment.mode), experiment.deadline
    has_profile = experiment.profile.name != "none"
    if deadline is not None and not has_profile:
        yield f"deadline is {deadline}, but profile is 'none'; {PROFILE}"
    if experiment.mode.name == "sync":
        return
    if not has_profile:
        yield f"mode is {mode!r}, but profile is 'none'; {PROFILE}"
    if deadline is not None:
        yield f"deadline is {deadline}, but mode {mode!r} has no rounds to end"
    if experiment.drop_stragglers:
        yield f"drop_stragglers is set, but mode {mode!r} waits for no client"
    if experiment.models:
        yield f"models are set, but mode {mode!r} takes one model for all clients"
    if experiment.devices not in (None, 1) or experiment.pin_clients:
        yield f"mode {mode!r} runs on one device; leave devices and pin_clients out"
