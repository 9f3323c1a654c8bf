"""The key figures of a run: the numbers to see first."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pfljax.report.html import EMPTY, Card, percent
from pfljax.report.runs import Run, find_records, judged_records, number

MEMORY_OF = {
    "process": "of the process, since it began",
    "device": "of the fullest device, since the process began",
}


def key_figures(run: Run) -> list[Card]:
    """The cards at the head of the page, those that the run has numbers for."""
    last = run.summary["last"]
    chosen = run.summary.get("chosen_on_validation")
    traffic = run.summary.get("traffic") or {}
    is_last = bool(chosen) and chosen["round"] == last["round"]
    too = ", chosen on validation too" if is_last else ""
    cards = _accuracy(f"Accuracy, last round{too}", last)
    cards += _worst_tenth(last)
    if chosen and not is_last:
        cards += _accuracy("Accuracy, round chosen on validation", chosen)
    cards += _mixture(run.summary.get("mixture") or {})
    cards += _dissimilarity(last)
    cards += _inexactness(run)
    cards += _worse_than_local(run.summary.get("worse_than_local"))
    cards += _privacy(run.summary.get("privacy") or {})
    cards += _staleness(run)
    cards += _virtual_seconds(run)
    if traffic:
        cards.append(_traffic("up", traffic))
        cards.append(_traffic("down", traffic))
    if run.timing.seconds is not None:
        card = Card(
            title="Time of training",
            value=f"{run.timing.seconds:.1f} s",
            note="of the rounds alone: evaluations are apart",
        )
        cards.append(card)
    cards += _step(run.summary.get("step_flops") or {})
    if run.timing.peak_bytes is not None:
        card = Card(
            title="Most memory",
            value=f"{run.timing.peak_bytes / 1e6:.0f} MB",
            note=MEMORY_OF.get(run.timing.peak_of, ""),
        )
        cards.append(card)
    return cards


def _privacy(privacy: Mapping[str, Any]) -> list[Card]:
    """What a run with noise at the server gives away of a client."""
    if privacy.get("epsilon") is None:
        return []
    note = (
        f"at delta {privacy['delta']:g}, for a client of {privacy['rounds']:g} rounds "
        f"that ask {privacy['sampled']:.3g} of the clients"
    )
    return [Card(title="Epsilon", value=f"{privacy['epsilon']:.3g}", note=note)]


def _staleness(run: Run) -> list[Card]:
    """How late uploads came, of a run with asynchronous rounds."""
    by_round = [number(line.get("train_staleness")) for line in run.rounds]
    late = np.array(by_round)
    if np.isnan(late).all():
        return []
    note = (
        "versions of the server's model from the one that a client read to the one "
        f"that its upload met, mean over rounds; {np.nanmax(late):.2f} in one at most"
    )
    return [Card(title="Staleness", value=f"{np.nanmean(late):.2f}", note=note)]


def _virtual_seconds(run: Run) -> list[Card]:
    """What the whole run took by the clock, if it has one."""
    clock = run.rounds[-1].get("clock")
    if clock is None:
        return []
    note = "of all rounds, by bytes, local steps and the devices' profile"
    return [Card(title="Virtual time", value=f"{clock:.4g} s", note=note)]


def _inexactness(run: Run) -> list[Card]:
    """How exactly clients solved their problems, of a method that tells."""
    gammas = [number(line.get("train_gamma")) for line in run.rounds]
    known = np.array(gammas)
    known = known[np.isfinite(known)]
    if not len(known):
        return []
    note = (
        "norm of the gradient of a client's problem where it ends by that where it "
        f"begins, mean over clients and rounds; {known[-1]:.3g} in the last"
    )
    return [Card(title="Inexactness gamma", value=f"{known.mean():.3g}", note=note)]


def model_text(record: Mapping[str, Any]) -> str:
    """Which parameters a record judges."""
    if not record["finetune"]:
        return record["model"]
    return f"{record['model']} + {record['finetune']} local steps"


def _accuracy(title: str, moment: Mapping[str, Any]) -> list[Card]:
    """Mean accuracy of the judged model, and of the server's where that is another."""
    tests = find_records(moment["evaluations"], split="test", clients="all")
    judged = judged_records(moment["evaluations"])[:1]
    if not judged:
        return []
    (record,) = judged
    note = f"round {moment['round']}, {model_text(record)}, {record['when']}"
    for other in tests:
        if other not in judged:
            note += f"; {model_text(other)}: {_mean(other)} %"
    value = f"{_mean(record)} %"
    return [Card(title=title, value=value, note=note)]


def _worst_tenth(moment: Mapping[str, Any]) -> list[Card]:
    """How far apart the clients are."""
    judged = judged_records(moment["evaluations"])
    if not judged:
        return []
    # The first is the one that the tables and figures judge by.
    accuracy = judged[0]["metrics"].get("accuracy")
    if not accuracy:
        return []
    std = percent(accuracy.get("std"))
    least = percent(accuracy.get("min"))
    worst = percent(accuracy.get("worst10"))
    note = (
        f"mean of those clients; over all, standard deviation {std} points, "
        f"least {least} %"
    )
    card = Card(title="Worst tenth of clients", value=f"{worst} %", note=note)
    return [card]


def _mixture(mixture: Mapping[str, Any]) -> list[Card]:
    """Accuracy with lambda chosen on validation rows."""
    chosen = mixture.get("chosen_on_validation") or {}
    accuracy = chosen.get("accuracy")
    if not accuracy:
        return []
    mean = percent(accuracy.get("mean"))
    card = Card(
        title="Accuracy, λ chosen on validation",
        value=f"{mean} %",
        note="each client's λ by its validation rows, mean over clients",
    )
    return [card]


def _dissimilarity(moment: Mapping[str, Any]) -> list[Card]:
    """How far clients' gradients are apart at the server's model, if measured."""
    measured = moment.get("dissimilarity")
    if not measured:
        return []
    values = {name: f"{number(value):.3g}" for name, value in measured.items()}
    cards = []
    if "rho" in values:
        note = (
            "a round lowers the loss by so much times the squared norm of the mean "
            "gradient, or more, as FedProx's theorem expects of this B and the "
            "cohort's gamma and mu; nothing where it is not above 0"
        )
        card = Card(title="Expected decrease rho", value=values["rho"], note=note)
        cards.append(card)
    card = Card(
        title="Dissimilarity B of clients' gradients",
        value=values["b"],
        note=f"variance {values['variance']}, norm of their mean {values['gradient']}, "
        f"loss over all training rows {values['loss']}, at the server's model",
    )
    return [card, *cards]


def _step(flops: Mapping[str, float | None]) -> list[Card]:
    """The arithmetic of a local step; an older run has not recorded it."""
    if not flops:
        return []
    by_xla = "XLA has no figure for a model with a loop"
    if flops.get("xla") is not None:
        by_xla = f"one step on the loss {millions(flops['xla'])} by XLA"
    card = Card(
        title="FLOPs of a local step",
        value=f"{millions(flops['products'])} M",
        note=f"products of all models that the method trains; in millions, {by_xla}",
    )
    return [card]


def millions(flops: float | None) -> str:
    """FLOPs in millions, a dash for None."""
    return EMPTY if flops is None else f"{flops / 1e6:,.3f}"


def _worse_than_local(share: float | None) -> list[Card]:
    """The share of clients that would do better alone."""
    if share is None:
        return []
    title = "Clients worse off than with local training"
    return [Card(title=title, value=f"{percent(share)} %")]


def _traffic(way: str, traffic: Mapping[str, Any]) -> Card:
    """Megabytes sent one way."""
    each = number(traffic.get(f"{way}_per_client")) / 1e6
    total = number(traffic.get(f"{way}_total")) / 1e6
    return Card(
        title=f"Sent {way}",
        value=f"{total:.2f} MB",
        note=f"by all clients; {each:.3f} MB a client and round",
    )


def _mean(record: Mapping[str, Any]) -> str:
    """Mean accuracy over clients, as percent."""
    accuracy = record["metrics"].get("accuracy") or {}
    return percent(accuracy.get("mean"))
