"""The key figures of a run: the numbers to see first."""

from collections.abc import Iterator

import numpy as np

from pfljax.report.runs import Record, is_main, model_text, number
from pfljax.report.tables import format_number
from pfljax.runs.result import Result

Card = tuple[str, str, str]  # title, value, note


def key_figures(run: Result) -> list[Card]:
    """(title, value, note) of the numbers that the run has."""
    return [
        *_accuracies(run),
        *_dissimilarity(run),
        *_training(run),
        *_privacy(run),
        *_costs(run),
    ]


def _percent(share: float | None) -> str:
    return format_number(share, ".2f", 100)


def _accuracies(run: Result) -> Iterator[Card]:
    last, chosen = run.summary["last"], run.summary["chosen_on_validation"]
    is_same = bool(chosen) and chosen["round"] == last["round"]
    too = ", also chosen on validation" if is_same else ""
    yield _accuracy(f"Accuracy at the last round{too}", last)
    accuracy = next(iter(_by_model(last).values()))
    note = (
        f"over all clients, standard deviation {_percent(accuracy['std'])} points, "
        f"least {_percent(accuracy['min'])} %"
    )
    yield "Worst tenth of clients", f"{_percent(accuracy['worst10'])} %", note
    if chosen and not is_same:
        yield _accuracy("Accuracy at the round chosen on validation", chosen)
    mixture = (run.summary["mixture"] or {}).get("chosen_on_validation")
    if mixture:
        mean = _percent(mixture["accuracy"]["mean"])
        note = "each client's λ is chosen on its validation data; mean over clients"
        yield "Accuracy, λ chosen on validation", f"{mean} %", note
    best = run.summary["best_on_test"]
    note = f"not a result: round {best['round']} is chosen on the test data"
    yield "Best on test", f"{_percent(best['accuracy'])} %", note


def _accuracy(title: str, evaluation: Record) -> Card:
    """The accuracy of the main model, and in the note that of the others."""
    (main, accuracy), *others = _by_model(evaluation).items()
    notes = [f"round {evaluation['round']}, {main}"]
    notes += [f"{model} {_percent(other['mean'])} %" for model, other in others]
    return title, f"{_percent(accuracy['mean'])} %", "; ".join(notes)


def _by_model(evaluation: Record) -> dict[str, Record]:
    """Figures of the test accuracy over all clients, those of the main model first."""
    records = sorted(evaluation["evaluations"], key=lambda each: not is_main(each))
    return {
        model_text(record): record["metrics"]["accuracy"]
        for record in records
        if (record["split"], record["clients"]) == ("test", "all")
    }


def _dissimilarity(run: Result) -> Iterator[Card]:
    measured = run.summary["last"].get("dissimilarity")
    if not measured:
        return
    values = {name: f"{number(value):.3g}" for name, value in measured.items()}
    note = (
        f"of clients' gradients at the server's model: variance {values['variance']}, "
        f"norm of their mean {values['gradient']}, loss over all training data "
        f"{values['loss']}"
    )
    yield "Dissimilarity B", values["b"], note


def _training(run: Result) -> Iterator[Card]:
    gammas = _by_round(run, "train_gamma")
    if len(gammas):
        note = (
            "norm of the gradient of a client's problem at its end, divided by that at "
            f"its start; mean over clients and rounds, {gammas[-1]:.3g} in the last"
        )
        yield "Inexactness gamma", f"{gammas.mean():.3g}", note
    staleness = _by_round(run, "train_staleness")
    if len(staleness):
        note = (
            "versions of the server's model between a client's download and its "
            f"upload, mean over rounds; at most {staleness.max():.2f} in one"
        )
        yield "Staleness", f"{staleness.mean():.2f}", note


def _privacy(run: Result) -> Iterator[Card]:
    privacy = run.summary.get("privacy") or {}
    if privacy.get("epsilon") is not None:
        note = (
            f"at delta {privacy['delta']:g}, for a client of {privacy['rounds']:g} "
            f"rounds, each with {privacy['sampled']:.3g} of the clients"
        )
        yield "Epsilon", f"{privacy['epsilon']:.3g}", note


def _costs(run: Result) -> Iterator[Card]:
    clock = run.metrics[-1].get("clock")
    if clock is not None:
        note = "of all rounds, from bytes, local steps and the devices' profile"
        yield "Virtual time", f"{clock:.4g} s", note
    traffic = run.summary.get("traffic") or {}
    for way in ("up", "down") if traffic else ():
        each = number(traffic.get(f"{way}_per_client")) / 1e6
        total = number(traffic.get(f"{way}_total")) / 1e6
        note = f"by all clients; {each:.3f} MB a client and round"
        yield f"Sent {way}", f"{total:.2f} MB", note
    seconds = run.environment.get("seconds")
    if seconds is not None:
        note = "of the rounds alone, without evaluations"
        yield "Time of training", f"{seconds:.1f} s", note
    flops = run.summary.get("step_flops")
    if flops:
        note = "of all models that the method trains, counted by XLA"
        yield "FLOPs of a local step", f"{flops / 1e6:,.3f} M", note
    peak = run.environment.get("peak_bytes")
    if peak is not None:
        note = f"of the {run.environment['peak_of']}, from the start of the process"
        yield "Most memory", f"{peak / 1e6:.0f} MB", note


def _by_round(run: Result, name: str) -> np.ndarray:
    """The finite values of a number in the lines of the log."""
    values = np.array([number(line.get(name)) for line in run.metrics])
    return values[np.isfinite(values)]
