"""The key figures of a run: the numbers to see first."""

from collections.abc import Mapping
from typing import Any

from pfljax.report.html import Card, percent
from pfljax.report.runs import Run, find_records, judged_records, number


def key_figures(run: Run) -> list[Card]:
    """The cards at the head of the page, those that the run has numbers for."""
    last = run.summary["last"]
    chosen = run.summary.get("chosen_on_validation")
    traffic = run.summary.get("traffic") or {}
    cards = _accuracy("Accuracy, last round", last)
    cards += _worst_tenth(last)
    if chosen:
        cards += _accuracy("Accuracy, round chosen on validation", chosen)
    cards += _mixture(run.summary.get("mixture") or {})
    cards += _worse_than_local(run.summary.get("worse_than_local"))
    if traffic:
        cards += [_traffic("up", traffic), _traffic("down", traffic)]
    if run.seconds is not None:
        note = "of the rounds alone: evaluations are apart"
        cards.append(Card("Time of training", f"{run.seconds:.1f} s", note))
    return cards


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
    note = f"round {moment['round']}, {model_text(judged[0])}, {judged[0]['when']}"
    for record in tests:
        if record not in judged:
            note += f"; {model_text(record)}: {_mean(record)} %"
    return [Card(title, f"{_mean(judged[0])} %", note)]


def _worst_tenth(moment: Mapping[str, Any]) -> list[Card]:
    """How far apart the clients are."""
    judged = judged_records(moment["evaluations"])[:1]
    accuracy = (judged[0]["metrics"].get("accuracy") or {}) if judged else {}
    if not accuracy:
        return []
    std = percent(accuracy.get("std"))
    least = percent(accuracy.get("min"))
    note = (
        f"mean of those clients; over all, standard deviation {std} points, "
        f"least {least} %"
    )
    return [
        Card("Worst tenth of clients", f"{percent(accuracy.get('worst10'))} %", note)
    ]


def _mixture(mixture: Mapping[str, Any]) -> list[Card]:
    """Accuracy with lambda chosen on validation rows."""
    accuracy = (mixture.get("chosen_on_validation") or {}).get("accuracy")
    if not accuracy:
        return []
    value = f"{percent(accuracy.get('mean'))} %"
    note = "each client's λ by its validation rows, mean over clients"
    return [Card("Accuracy, λ chosen on validation", value, note)]


def _worse_than_local(share: float | None) -> list[Card]:
    """The share of clients that would do better alone."""
    if share is None:
        return []
    return [Card("Clients worse off than with local training", f"{percent(share)} %")]


def _traffic(way: str, traffic: Mapping[str, Any]) -> Card:
    """Megabytes sent one way."""
    each = number(traffic.get(f"{way}_per_client")) / 1e6
    total = number(traffic.get(f"{way}_total")) / 1e6
    note = f"by all clients; {each:.3f} MB a client and round"
    return Card(f"Sent {way}", f"{total:.2f} MB", note)


def _mean(record: Mapping[str, Any]) -> str:
    """Mean accuracy over clients, as percent."""
    return percent((record["metrics"].get("accuracy") or {}).get("mean"))
