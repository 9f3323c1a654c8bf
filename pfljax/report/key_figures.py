"""The key figures of a run: the numbers to see first."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pfljax.report.html import percent
from pfljax.report.runs import Run, find, main_record, model_text, number

Card = tuple[str, str, str]  # title, value, note
MEMORY_OF = {
    "process": "of the process, since it began",
    "device": "of the fullest device, since the process began",
}


def key_figures(run: Run) -> list[Card]:
    """(title, value, note) of the numbers that the run has."""
    return [*_accuracies(run), *_training(run), *_costs(run)]


def _accuracies(run: Run) -> Iterator[Card]:
    last = run.summary["last"]
    chosen = run.summary.get("chosen_on_validation")
    same = bool(chosen) and chosen["round"] == last["round"]
    too = ", also chosen on validation" if same else ""
    yield from _accuracy(f"Accuracy at the last round{too}", last)
    main = main_record(last["evaluations"]) or {"metrics": {}}
    accuracy = main["metrics"].get("accuracy")
    if accuracy:
        note = (
            f"over all clients, standard deviation {percent(accuracy.get('std'))} "
            f"points, least {percent(accuracy.get('min'))} %"
        )
        yield "Worst tenth of clients", f"{percent(accuracy.get('worst10'))} %", note
    if chosen and not same:
        yield from _accuracy("Accuracy at the round chosen on validation", chosen)
    mixture = (run.summary.get("mixture") or {}).get("chosen_on_validation") or {}
    if mixture.get("accuracy"):
        mean = percent(mixture["accuracy"].get("mean"))
        note = "each client's λ by its validation data, mean over clients"
        yield "Accuracy, λ chosen on validation", f"{mean} %", note
    best = run.summary.get("best_on_test")
    if best:
        note = f"not a result: round {best['round']} is chosen on the test data"
        yield "Best on test", f"{percent(best['accuracy'])} %", note
    share = run.summary.get("worse_than_local")
    if share is not None:
        yield "Worse off than with local training", f"{percent(share)} %", "of clients"


def _accuracy(title: str, moment: Mapping[str, Any]) -> Iterator[Card]:
    """The accuracy of the main model, and in the note that of the others."""
    main = main_record(moment["evaluations"])
    if main is None:
        return
    note = f"round {moment['round']}, {model_text(main)}"
    for other in find(moment["evaluations"], split="test", clients="all"):
        if other is not main:
            note += f"; {model_text(other)} {_mean(other)} %"
    yield title, f"{_mean(main)} %", note


def _training(run: Run) -> Iterator[Card]:
    """What some methods and settings measure beside the accuracy."""
    measured = run.summary["last"].get("dissimilarity")
    if measured:
        values = {name: f"{number(value):.3g}" for name, value in measured.items()}
        note = (
            f"of clients' gradients at the server's model: variance "
            f"{values['variance']}, norm of their mean {values['gradient']}, loss over "
            f"all training data {values['loss']}"
        )
        yield "Dissimilarity B", values["b"], note
        if "rho" in values:
            note = "a round lowers the loss by rho times the squared norm, or more"
            yield "Expected decrease rho", values["rho"], note
    gammas = _by_round(run, "train_gamma")
    if len(gammas):
        note = (
            "norm of the gradient of a client's problem at its end by that at its "
            f"start, mean over clients and rounds; {gammas[-1]:.3g} in the last"
        )
        yield "Inexactness gamma", f"{gammas.mean():.3g}", note
    staleness = _by_round(run, "train_staleness")
    if len(staleness):
        note = (
            "versions of the server's model between the read of a client and its "
            f"upload, mean over rounds; at most {staleness.max():.2f} in one"
        )
        yield "Staleness", f"{staleness.mean():.2f}", note
    privacy = run.summary.get("privacy") or {}
    if privacy.get("epsilon") is not None:
        note = (
            f"at delta {privacy['delta']:g}, for a client of {privacy['rounds']:g} "
            f"rounds that ask {privacy['sampled']:.3g} of the clients"
        )
        yield "Epsilon", f"{privacy['epsilon']:.3g}", note


def _costs(run: Run) -> Iterator[Card]:
    clock = run.rounds[-1].get("clock")
    if clock is not None:
        note = "of all rounds, by bytes, local steps and the devices' profile"
        yield "Virtual time", f"{clock:.4g} s", note
    traffic = run.summary.get("traffic") or {}
    for way in ("up", "down") if traffic else ():
        each = number(traffic.get(f"{way}_per_client")) / 1e6
        total = number(traffic.get(f"{way}_total")) / 1e6
        note = f"by all clients; {each:.3f} MB a client and round"
        yield f"Sent {way}", f"{total:.2f} MB", note
    if np.isfinite(run.seconds):
        note = "of the rounds alone, without evaluations"
        yield "Time of training", f"{run.seconds:.1f} s", note
    flops = run.summary.get("step_flops")
    if flops:
        note = "of all models that the method trains, counted by XLA"
        yield "FLOPs of a local step", f"{flops / 1e6:,.3f} M", note
    peak, whose = run.peak
    if np.isfinite(peak):
        yield "Most memory", f"{peak / 1e6:.0f} MB", MEMORY_OF.get(whose, "")


def _by_round(run: Run, name: str) -> np.ndarray:
    """The finite values of a number in the lines of the log."""
    values = np.array([number(line.get(name)) for line in run.rounds])
    return values[np.isfinite(values)]


def _mean(record: Mapping[str, Any]) -> str:
    return percent((record["metrics"].get("accuracy") or {}).get("mean"))
