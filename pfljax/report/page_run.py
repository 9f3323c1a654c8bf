"""The page of one run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.report.columns import CALIBRATION
from pfljax.report.figures import models_of
from pfljax.report.html import (
    Card,
    Picture,
    Section,
    cards,
    counted,
    document,
    figures,
    fixed,
    folded,
    grid,
    note,
    pairs,
    percent,
)
from pfljax.report.runs import Run, find_records, judged_records, number
from pfljax.report.tables import MIXTURE_ROWS

STATISTICS = {  # field of a statistic over clients -> heading
    "mean": "Mean (%)",
    "std": "Std over clients (points)",
    "weighted": "Weighted (%)",
    "worst10": "Worst 10 % (%)",
    "best10": "Best 10 % (%)",
    "min": "Min (%)",
    "max": "Max (%)",
}
JUDGED = ["Model", "Clients", "When", "Split", "Count"]
CURVES = ("learning_curves", "lambda_curve")
CLIENTS = ("accuracy_histogram", "accuracy_by_client", "label_distribution")
MOST_CLIENTS = 500  # with a row of their own
BY_CLIENT = ("clients", "sizes", "class_histogram", "official", "official_names")


def run_page(run: Run, pictures: Sequence[Picture]) -> str:
    """The page of one run."""
    named = {picture.name: picture for picture in pictures}
    curves, clients = (
        figures(named.pop(name) for name in names if name in named)
        for names in (CURVES, CLIENTS)
    )
    sections = [
        Section("Summary", cards(_key_figures(run))),
        Section("Accuracy", _accuracy(run)),
        Section("Curves", curves),
        Section("Clients", clients + _each_client(run)),
        Section("Landscape", figures(named.values())),
        Section("Config", folded("All settings", pairs(run.config))),
        Section("Provenance", _provenance(run)),
    ]
    return document(run.label, _facts(run), sections)


def _facts(run: Run) -> list[str]:
    """What was run on what."""
    config = run.config
    return [
        str(config["algorithm"]),
        f"data {config.get('dataset', 'unknown')}",
        f"partition {config.get('partition', 'unknown')}",
        f"{len(run.partition['class_histogram'])} clients",
        f"{run.summary['rounds']} rounds",
        f"seed {config['seed']}",
    ]


def _key_figures(run: Run) -> list[Card]:
    """The numbers to see first."""
    last, chosen = run.summary["last"], run.summary.get("chosen_on_validation")
    found = _moment("Accuracy, last round", last)
    found += _worst(last)
    found += _moment("Accuracy, round chosen on validation", chosen) if chosen else []
    mixed = (run.summary.get("mixture") or {}).get("chosen_on_validation") or {}
    if mixed.get("accuracy"):
        value = f"{percent(mixed['accuracy'].get('mean'))} %"
        told = "each client's λ by its validation rows, mean over clients"
        found.append(Card("Accuracy, λ chosen on validation", value, told))
    worse = run.summary.get("worse_than_local")
    if worse is not None:
        found.append(
            Card("Clients worse off than with local training", f"{percent(worse)} %")
        )
    for way in ("up", "down"):
        found += _traffic(way, run.summary.get("traffic") or {})
    if run.seconds is not None:
        told = "of the rounds alone: evaluations are apart"
        found.append(Card("Time of training", f"{run.seconds:.1f} s", told))
    return found


def _moment(title: str, moment: Mapping[str, Any]) -> list[Card]:
    """Mean accuracy of the judged model, and of the server's where that is another."""
    tests = find_records(moment["evaluations"], split="test", clients="all")
    judged = judged_records(moment["evaluations"])[:1]
    others = [r for r in tests if r not in judged]
    if not judged:
        return []
    beside = "".join(f"; {_which(r)}: {_mean(r)} %" for r in others)
    told = f"round {moment['round']}, {_which(judged[0])}, {judged[0]['when']}{beside}"
    return [Card(title, f"{_mean(judged[0])} %", told)]


def _worst(moment: Mapping[str, Any]) -> list[Card]:
    """How far apart the clients are."""
    judged = judged_records(moment["evaluations"])[:1]
    accuracy = (judged[0]["metrics"].get("accuracy") or {}) if judged else {}
    if not accuracy:
        return []
    value = f"{percent(accuracy.get('worst10'))} %"
    told = (
        f"mean of those clients; over all, standard deviation "
        f"{percent(accuracy.get('std'))} points, least {percent(accuracy.get('min'))} %"
    )
    return [Card("Worst tenth of clients", value, told)]


def _traffic(way: str, traffic: Mapping[str, Any]) -> list[Card]:
    """Megabytes sent one way."""
    if not traffic:
        return []
    a_client = number(traffic.get(f"{way}_per_client")) / 1e6
    total = number(traffic.get(f"{way}_total")) / 1e6
    told = f"by all clients; {a_client:.3f} MB a client and round"
    return [Card(f"Sent {way}", f"{total:.2f} MB", told)]


def _which(record: Mapping[str, Any]) -> str:
    """Which parameters a record judges."""
    tuned = f" + {record['finetune']} local steps" if record["finetune"] else ""
    return record["model"] + tuned


def _mean(record: Mapping[str, Any]) -> str:
    return percent((record["metrics"].get("accuracy") or {}).get("mean"))


def _accuracy(run: Run) -> str:
    """The tables of the last round."""
    last, best = run.summary["last"], run.summary.get("best_on_test")
    told = ""
    if best:
        level = percent(best.get("accuracy"))
        told = note(
            f"Best on test (not a result): {level} % at round {best['round']}, "
            "chosen on the test rows themselves."
        )
    return "\n".join(
        [
            _evaluations(last),
            _mixture(run.summary.get("mixture") or {}),
            told,
            folded("Calibration and loss", _calibration(last["evaluations"])),
        ]
    )


def _evaluations(moment: Mapping[str, Any]) -> str:
    """Every evaluation record, one row each."""
    rows = []
    for r in moment["evaluations"]:
        accuracy = r["metrics"].get("accuracy") or {}
        rows.append([*_judged(r), *(percent(accuracy.get(k)) for k in STATISTICS)])
    caption = f"Accuracy at round {moment['round']}, statistics over clients."
    return grid([*JUDGED, *STATISTICS.values()], rows, caption)


def _calibration(records: Sequence[Mapping[str, Any]]) -> str:
    """What else every record tells, as means over clients."""
    rows = []
    for r in records:
        means = [
            fixed(
                column.scale * number((r["metrics"].get(column.key) or {}).get("mean")),
                column.digits,
            )
            for column in CALIBRATION
        ]
        rows.append([*_judged(r), *means])
    titles = [*JUDGED, *(column.title for column in CALIBRATION)]
    return grid(titles, rows, "Calibration and loss, means over clients.")


def _judged(record: Mapping[str, Any]) -> list[Any]:
    """Which parameters, over whom, when, and on which rows: the cells of `JUDGED`."""
    told = [record[key] for key in ("clients", "when", "split", "count")]
    return [_which(record), *told]


def _mixture(mixture: Mapping[str, Any]) -> str:
    """The ways to set lambda, nothing where the method has no mixture."""
    rows = [
        [name, *(percent(mixture[key]["accuracy"].get(k)) for k in STATISTICS)]
        for key, name in MIXTURE_ROWS.items()
        if (mixture.get(key) or {}).get("accuracy")
    ]
    caption = "Mixture of the federated and the local end. Accuracy over clients."
    return grid(["λ", *STATISTICS.values()], rows, caption)


def _each_client(run: Run) -> str:
    """A row a client: its rows, how often it took part, its accuracies."""
    arrays, histogram = run.per_client, np.asarray(run.partition["class_histogram"])
    C = len(histogram)
    ids = run.partition.get("clients") or range(C)
    columns: dict[str, Sequence[Any]] = {"Client": ids}
    names = {"train_size": "Training rows", "test_size": "Test rows"}
    names["participations"] = "Rounds taken part in"
    columns |= {t: arrays[k].tolist() for k, t in names.items() if k in arrays}
    columns["Classes"] = (histogram > 0).sum(1).tolist()
    order = np.arange(C)
    for i, (model, told) in enumerate(models_of(run).items()):
        last = 100 * arrays[f"{model}/test/accuracy"][-1].astype(float)
        columns[f"Accuracy, {told} (%)"] = [fixed(value, 2) for value in last]
        order = order if i or C <= MOST_CLIENTS else np.argsort(last)[:MOST_CLIENTS]
    shown = order[:MOST_CLIENTS]
    title = f"Each of {C} clients"
    if len(shown) < C:
        title = f"The {len(shown)} clients of least accuracy, of {C}"
    rows = ([column[k] for column in columns.values()] for k in shown)
    return folded(f"{title}: rows and test accuracy", grid([*columns], rows))


def _provenance(run: Run) -> str:
    """Where data and numbers come from: all that the folder has."""
    environment = dict(run.environment)
    packages = environment.pop("packages", {})
    if "devices" in environment:
        environment["devices"] = counted(environment["devices"])
    recorded = pairs(environment | packages | run.executor)
    return "\n".join(
        [
            f"<h3>Data</h3>{pairs(_data(run))}",
            f"<h3>Environment</h3>{recorded or note('not recorded')}",
        ]
    )


def _data(run: Run) -> dict[str, Any]:
    """The manifest in few lines, without what it says of each client."""
    known = run.partition
    kept = {k: v for k, v in known.items() if k not in (*BY_CLIENT, "unseen", "sha256")}
    sizes = {
        f"rows to {name}": f"{sum(found)} in all, {min(found)} to {max(found)} a client"
        for name, found in known["sizes"].items()
        if found
    }
    official = known.get("official")
    if isinstance(official, list):  # rows by client and split
        total = np.sum(official, axis=0).tolist()
        official = dict(zip(known["official_names"], total, strict=True))
    unseen = known.get("unseen")
    if unseen:
        kept["clients held out"] = len(unseen["class_histogram"])
    return kept | sizes | {"official split": official, "sha256": known["sha256"]}
