"""Settings that are right alone and not beside one another."""

from collections.abc import Iterator

from pfljax.runs.settings import Experiment, flat

DEVICES = "choose a profile, such as --profile speed_groups"


def problems(experiment: Experiment) -> Iterator[str]:
    """What is at odds, a text each; of settings whose types and ranges are right."""
    yield from _odd_texts(experiment)
    yield from _odd_work(experiment)
    yield from _odd_cohort(experiment)
    yield from _odd_models(experiment)
    yield from _odd_dissimilarity(experiment)
    yield from _odd_clock(experiment)
    yield from _odd_log(experiment)
    judged = experiment.evaluation
    if judged.watch != "accuracy" and judged.patience is None:
        yield f"watch is {judged.watch!r}, but patience is None; give --patience 3, say"
    machine = experiment.machine
    if machine.homes and machine.store != "device":
        yield (
            f"homes is set, but store is {machine.store!r}, whose states lie on no "
            'device; choose store="device"'
        )


def _odd_texts(experiment: Experiment) -> Iterator[str]:
    """Texts that no file system or page takes."""
    for name in ("out", "label", "baseline"):
        text = flat(experiment)[name]
        if text is None:
            continue
        # Surrogates are what Python makes of bytes that are no UTF-8.
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            yield f"{name} is {text!r}; expected text without zero bytes, in UTF-8"


def _odd_work(experiment: Experiment) -> Iterator[str]:
    training = experiment.training
    if (training.epochs is None) == (training.steps is None):
        yield (
            f"epochs is {training.epochs} and steps is {training.steps}; give exactly "
            "one of them, and None for the other: --epochs None --steps 3"
        )
    optimizer = training.optimizer
    if optimizer.name != "sgd" and (training.momentum or training.weight_decay):
        yield (
            f"momentum and weight_decay belong to sgd; give {str(optimizer)!r} "
            "its own options, such as adamw:weight_decay=0.01"
        )


def _odd_cohort(experiment: Experiment) -> Iterator[str]:
    clients = experiment.data.clients
    cohort = experiment.participation.cohort
    stragglers = experiment.participation.stragglers
    if clients is not None and cohort > clients > 0:
        yield (
            f"cohort is {cohort}, but there are {clients} clients; "
            f"choose cohort <= {clients}"
        )
    dropped = experiment.participation.drop_stragglers
    if dropped and not stragglers:
        yield "drop_stragglers is set, but stragglers is 0; give their share"
    if dropped and round(stragglers * cohort) >= cohort:
        yield (
            f"stragglers is {stragglers} and drop_stragglers is set: of a cohort of "
            f"{cohort} nobody would ever report; choose a smaller share, or keep "
            "their work"
        )
    if 0 < stragglers <= 1 and not round(stragglers * cohort):
        yield f"stragglers is {stragglers}, which is nobody in a cohort of {cohort}"


def _odd_dissimilarity(experiment: Experiment) -> Iterator[str]:
    evaluation = experiment.evaluation
    smoothness = evaluation.smoothness
    if smoothness is not None and not evaluation.dissimilarity:
        yield f"smoothness is {smoothness}, but rho needs B; set dissimilarity as well"
    if evaluation.concavity and smoothness is None:
        yield (
            f"concavity is {evaluation.concavity}, but rho needs L as well; give "
            "smoothness"
        )
    if not evaluation.dissimilarity:
        return
    if experiment.method.models:
        yield (
            "dissimilarity is set, but models are given: gradients of several "
            "architectures have no distance; leave one of the two out"
        )
    if experiment.machine.homes:
        yield (
            "dissimilarity is set, and homes: it goes over the rows of all clients on "
            "each device; leave one of the two out"
        )


def _odd_models(experiment: Experiment) -> Iterator[str]:
    """Clients of several architectures beside what wants one."""
    models = experiment.method.models
    model = experiment.method.model
    clients = experiment.data.clients
    if not models:
        return
    if model.name != "auto":
        yield f"model is {str(model)!r} and models are given; give one of the two"
    if clients is not None and len(models) > clients > 0:
        yield (
            f"models has {len(models)} names, but there are {clients} clients: some "
            "architecture would have no client; give fewer, or more clients"
        )


def _odd_clock(experiment: Experiment) -> Iterator[str]:
    """Virtual time without devices, and modes beside what they do not go with."""
    participation = experiment.participation
    is_sync = participation.mode.name == "sync"
    deadline = participation.deadline
    if participation.profile.name == "none" and deadline is not None:
        yield f"deadline is {deadline}, but no devices are given; {DEVICES}"
    if is_sync:
        return
    mode = str(participation.mode)
    machine = experiment.machine
    if participation.profile.name == "none":
        yield f"mode is {mode!r}, but no devices are given; {DEVICES}"
    if deadline is not None:
        yield (
            f"deadline is {deadline}, but mode {mode!r} has no rounds to end; leave "
            "it out"
        )
    if participation.drop_stragglers:
        yield f"drop_stragglers is set, but mode {mode!r} waits for nobody; leave it"
    if experiment.method.models:
        yield f"models are given, but mode {mode!r} takes one for all clients"
    if machine.devices not in (None, 1) or machine.homes:
        yield f"mode {mode!r} runs on one device; leave devices and homes out"


def _odd_log(experiment: Experiment) -> Iterator[str]:
    """One sink twice: both would write to the same files."""
    names = [choice.name for choice in experiment.output.log]
    for name in sorted(set(names)):
        if names.count(name) > 1:
            yield f"log has {name} {names.count(name)} times; give it once"
