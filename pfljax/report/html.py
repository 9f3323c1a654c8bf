"""One self-contained HTML page for a run or a comparison: inline CSS, inline images.

Every text is escaped; nothing is loaded from anywhere, and no script runs.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from pfljax.report.columns import CALIBRATION, Table
from pfljax.report.formats import html_table
from pfljax.report.runs import (
    UNIQUE_TO_A_RUN,
    Group,
    Run,
    differing_keys,
    find_records,
    number,
)
from pfljax.report.tables import MIXTURE_ROWS

CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2 { font-size: 1.15rem; margin-top: 2rem; }
p.facts { color: #555; margin-top: 0; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .5rem 0 1rem; }
caption { caption-side: bottom; text-align: left; color: #555; padding-top: .4rem; }
thead th { border-bottom: 1px solid #222; text-align: left; vertical-align: bottom; }
th, td { padding: .25rem .6rem; } tbody tr { border-bottom: 1px solid #e6e6e6; }
table.numbers td { text-align: right; font-variant-numeric: tabular-nums; }
table.numbers td:nth-child(1), table.numbers td:nth-child(2) { text-align: left; }
figure { margin: 1rem 0 1.5rem; } figure img { max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .85rem; max-width: 60rem; }
"""
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


class Picture(NamedTuple):
    """A PNG with its caption."""

    title: str
    png: bytes
    width: int  # CSS pixels
    caption: str


def run_page(run: Run, pictures: Sequence[Picture]) -> str:
    """The page of one run."""
    last = run.summary["last"]
    parts = [
        _facts(run),
        "<h2>Summary</h2>",
        pairs(_summary(run)),
        f"<h2>Accuracy at round {last['round']}</h2>",
        _evaluations(last["evaluations"]),
        "<h2>Calibration and loss, means over clients</h2>",
        _calibration(last["evaluations"]),
        _mixture(run.summary.get("mixture") or {}),
        "<h2>Figures</h2>",
        *map(_figure, pictures),
        "<h2>Config</h2>",
        pairs(run.config),
        "<h2>Partition</h2>",
        pairs(_partition(run)),
        "<h2>Environment</h2>",
        pairs(run.environment) if run.environment else "<p>not recorded</p>",
    ]
    return _document(run.label, parts)


def comparison_page(
    groups: Sequence[Group], tables: Sequence[Table], pictures: Sequence[Picture]
) -> str:
    """The page of several runs."""
    runs = [run for group in groups for run in group.runs]
    differ = differing_keys(runs)
    hidden = {*differ, *UNIQUE_TO_A_RUN}
    shared = {k: v for k, v in runs[0].config.items() if k not in hidden}
    parts = [
        f'<p class="facts">{len(groups)} methods, {len(runs)} runs</p>',
        *(f'<div class="wide">{html_table(table)}</div>' for table in tables),
        "<h2>Figures</h2>",
        *map(_figure, pictures),
        "<h2>Settings that all runs share</h2>",
        pairs(shared),
        "<h2>Settings that differ</h2>",
        _grid(["Method", *differ], [_setting_row(group, differ) for group in groups]),
        "<h2>Runs</h2>",
        _grid(
            ["Method", "Seed", "Folder", "Environment"],
            [
                [g.label, r.config["seed"], r.folder.name, r.environment]
                for g in groups
                for r in g.runs
            ],
        ),
    ]
    return _document("Comparison", parts)


def sweep_page(
    config: Mapping[str, Any], table: Table, pictures: Sequence[Picture]
) -> str:
    """The page of a sweep; `config` is what its runs share."""
    parts = [
        f'<div class="wide">{html_table(table)}</div>',
        *map(_figure, pictures),
        f"<h2>Settings, but for what is swept</h2>{pairs(config)}",
    ]
    return _document("Sweep", parts)


def pairs(mapping: Mapping[str, Any]) -> str:
    """A table of names and values."""
    return _grid(["Name", "Value"], mapping.items())


def _document(title: str, parts: Iterable[str]) -> str:
    """A whole page."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _facts(run: Run) -> str:
    """The first line: what was run on what."""
    config = run.config
    clients = len(run.partition["class_histogram"])
    facts = [
        str(config["algorithm"]),
        f"data {config.get('dataset', 'unknown')}",
        f"partition {config.get('partition', 'unknown')}",
        f"{clients} clients",
        f"{run.summary['rounds']} rounds",
        f"seed {config['seed']}",
    ]
    return f'<p class="facts">{escape(" · ".join(facts))}</p>'


def _summary(run: Run) -> dict[str, str]:
    """The numbers to see first."""
    best, worse = run.summary.get("best_on_test"), run.summary.get("worse_than_local")
    chosen, traffic = (
        run.summary.get("chosen_on_validation"),
        run.summary.get("traffic"),
    )
    found = {"Last round": _moment(run.summary["last"])}
    if chosen:
        found["Round chosen on validation"] = _moment(chosen)
    if best:
        level = _percent(best.get("accuracy"))
        found["Best on test (not a result)"] = f"{level} % at round {best['round']}"
    if worse is not None:
        found["Clients worse off than with local training"] = f"{_percent(worse)} %"
    if traffic:
        for way in ("up", "down"):
            a_client = number(traffic.get(f"{way}_per_client")) / 1e6
            total = number(traffic.get(f"{way}_total")) / 1e6
            text = f"{a_client:.3f} MB a client and round, {total:.2f} MB in total"
            found[f"Sent {way}"] = text
    if run.seconds is not None:
        text = f"{run.seconds:.1f} s, the compilation in the first call included"
        found["Time of training"] = text
    return found


def _moment(moment: dict) -> str:
    """Round, mean test accuracy over all clients of each model, and when judged."""
    tests = find_records(moment["evaluations"], split="test", clients="all")
    told = []
    for record in tests:
        accuracy = record["metrics"].get("accuracy") or {}
        level = _percent(accuracy.get("mean"))
        told.append(f"{level} % {_which(record)}, {record['when']}")
    return f"round {moment['round']}: " + "; ".join(told)


def _which(record: dict) -> str:
    """Which parameters a record judges."""
    tuned = f" + {record['finetune']} local steps" if record["finetune"] else ""
    return record["model"] + tuned


def _evaluations(records: Sequence[dict]) -> str:
    """Every evaluation record, one row each."""
    rows = []
    for r in records:
        accuracy = r["metrics"].get("accuracy") or {}
        rows.append([*_judged(r), *(_percent(accuracy.get(k)) for k in STATISTICS)])
    return _grid([*JUDGED, *STATISTICS.values()], rows)


def _calibration(records: Sequence[dict]) -> str:
    """What else every record tells, as means over clients."""
    rows = []
    for r in records:
        means = [
            column.scale * number((r["metrics"].get(column.key) or {}).get("mean"))
            for column in CALIBRATION
        ]
        texts = [
            "–" if np.isnan(mean) else f"{mean:.{column.digits}f}"
            for mean, column in zip(means, CALIBRATION, strict=True)
        ]
        rows.append([*_judged(r), *texts])
    return _grid([*JUDGED, *(column.title for column in CALIBRATION)], rows)


def _judged(record: dict) -> list[Any]:
    """Which parameters, over whom, when, and on which rows: the cells of `JUDGED`."""
    told = [record[key] for key in ("clients", "when", "split", "count")]
    return [_which(record), *told]


def _mixture(mixture: dict) -> str:
    """The ways to set lambda, nothing where the method has no mixture."""
    rows = [
        [text, *(_percent(mixture[key]["accuracy"].get(name)) for name in STATISTICS)]
        for key, text in MIXTURE_ROWS.items()
        if (mixture.get(key) or {}).get("accuracy")
    ]
    if not rows:
        return ""
    head = "<h2>Mixture of the federated and the local end</h2>"
    return head + _grid(["λ", *STATISTICS.values()], rows)


def _partition(run: Run) -> dict[str, Any]:
    """The manifest in few lines."""
    kept = {
        k: run.partition.get(k) for k in ("dataset", "num_classes", "seed", "sha256")
    }
    sizes = {
        f"rows to {name}": f"{sum(found)} in all, {min(found)} to {max(found)} a client"
        for name, found in run.partition["sizes"].items()
        if found
    }
    official = run.partition.get("official")
    if isinstance(official, list):  # rows by client and split
        total = np.sum(official, axis=0).tolist()
        official = dict(zip(run.partition["official_names"], total, strict=True))
    return kept | sizes | {"official split": official}


def _figure(picture: Picture) -> str:
    """An image in the page itself."""
    data = base64.b64encode(picture.png).decode("ascii")
    return (
        f'<figure><img width="{picture.width}" alt="{escape(picture.title)}" '
        f'src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _setting_row(group: Group, keys: Sequence[str]) -> list[Any]:
    """A method's values of the settings that differ."""
    return [group.label, *(group.runs[0].config.get(key) for key in keys)]


def _grid(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table; texts as they are, other values as JSON."""
    head = "".join(f"<th>{escape(text)}</th>" for text in header)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{escape(_text(value))}</td>' for value in row)}</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _text(value: Any) -> str:
    """A value as a reader types it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _percent(share: Any) -> str:
    """A share as percent, a dash where there is none."""
    value = 100 * number(share)
    return "–" if np.isnan(value) else f"{value:.2f}"
