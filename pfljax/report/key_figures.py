"""The key figures of a run: the numbers to see first."""

from collections.abc import Iterator

import numpy as np

from pfljax.report.lead import Lead, find_lead
from pfljax.report.runs import Record, is_main, model_text, number
from pfljax.runs.result import Result

Card = tuple[str, str, str]  # title, value, note


def key_figures(run: Result) -> list[Card]:
    """(title, value, note) of the numbers that the run has."""
    return [
        *_metrics(run, find_lead([run])),
        *_dissimilarity(run),
        *_training(run),
        *_privacy(run),
        *_costs(run),
    ]


def _metrics(run: Result, lead: Lead) -> Iterator[Card]:
    last, chosen = run.summary["last"], run.summary["chosen_on_validation"]
    is_same = bool(chosen) and chosen["round"] == last["round"]
    too = ", also chosen on validation" if is_same else ""
    yield _card(f"{lead.heading} at the last round{too}", lead, last)
    figures = next(iter(_by_model(last, lead).values()))
    worst = ("least", "min") if lead.sign > 0 else ("greatest", "max")
    note = (
        f"over all clients, standard deviation {lead.number(figures['std'])}"
        f"{lead.points}, {worst[0]} {lead.text(figures[worst[1]])}"
    )
    yield "Worst tenth of clients", lead.text(figures["worst10"]), note
    if chosen and not is_same:
        yield _card(f"{lead.heading} at the round chosen on validation", lead, chosen)
    mixture = (run.summary["mixture"] or {}).get("chosen_on_validation") or {}
    if lead.name in mixture:
        mean = lead.text(mixture[lead.name]["mean"])
        note = "each client's λ is chosen on its validation data; mean over clients"
        yield f"{lead.heading}, λ chosen on validation", mean, note
    best = run.summary["best_on_test"]
    note = f"not a result: round {best['round']} is chosen on the test data"
    yield "Best on test", lead.text(best[lead.name]), note


def _card(title: str, lead: Lead, evaluation: Record) -> Card:
    """The metric of the main model, and in the note that of the others."""
    (main, figures), *others = _by_model(evaluation, lead).items()
    notes = [f"round {evaluation['round']}, {main}"]
    notes += [f"{model} {lead.text(other['mean'])}" for model, other in others]
    return title, lead.text(figures["mean"]), "; ".join(notes)


def _by_model(evaluation: Record, lead: Lead) -> dict[str, Record]:
    """Figures of the test metric over all clients, those of the main model first."""
    records = sorted(evaluation["evaluations"], key=lambda each: not is_main(each))
    return {
        model_text(record): record["metrics"][lead.name]
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
    parameters = run.summary.get("parameters")
    if parameters:
        note = f"of a client; its whole model has {parameters['model']:,}"
        yield "Trained parameters", f"{parameters['trained']:,}", note
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
