"""The experiments: published numbers beside measured ones, and what is run for them."""

import csv
import importlib
import json
from fnmatch import fnmatch

import numpy as np
import pytest

from checkout import SHARED
from pfljax.core.components import Component
from pfljax.evaluation.over_clients import FIGURES
from pfljax.runs import checks, config
from pfljax.sweep import points

TABLES = [f"table{number}" for number in range(1, 6)]
OFFICIAL = SHARED / "tables" / "superfed_official_hparams.csv"
COMMANDS = {  # a name in OFFICIAL -> its table and columns here
    **{
        f"MNIST/CIFAR10 pathological K={clients}": ("table1", f"*-K{clients}")
        for clients in (50, 100, 500)
    },
    "CIFAR100 dirichlet alpha=1|10|100": ("table2", "CIFAR100-*"),
    **{
        f"TinyImageNet dirichlet alpha={alpha}": (
            "table2",
            f"TinyImageNet-a{alpha}",
        )
        for alpha in (1, 10, 100)
    },
    "FEMNIST": ("table3", "FEMNIST"),
    "Shakespeare": ("table3", "Shakespeare"),
    "label noise (all)": ("table4", "*"),
}


def load(name):
    return importlib.import_module(name)


def columns(name):
    module = load(name)
    return getattr(module, "COLUMNS", None) or [module.FEMNIST, module.SHAKESPEARE]


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_has_a_published_number_and_a_sound_experiment(name):
    protocol, published = load("protocol"), load("shared.published")
    metrics = getattr(load(name), "METRICS", None) or {
        "table2": {"top5": "top5_acc_pct"},
    }.get(name, protocol.ACCURACY)
    for column in columns(name):
        for theirs in metrics.values():
            wanted = {**column.published, "metric": theirs}
            known = published.published(protocol.PUBLISHED, wanted)
            assert set(known) == set(column.methods), (column.name, theirs)
        for label in column.methods:
            for small in (True, False):
                checks.check(protocol.experiment_of(column, label, small))


@pytest.mark.skipif(not OFFICIAL.exists(), reason="no ../shared/tables")
def test_hyperparameters_are_those_of_the_official_commands():
    protocol, met = load("protocol"), set()
    for row in csv.DictReader(OFFICIAL.read_text().splitlines()):
        if row["source"] != "official commands":
            continue
        module, names = COMMANDS[row["experiment"]]
        theirs = {k: float(row[k]) for k in ("nu", "mu")} | {
            "start": float(row["L_over_R"])
        }
        for column in (c for c in columns(module) if fnmatch(c.name, names)):
            label = f"SuPerFed-{row['variant']}"
            whole = protocol.experiment_of(column, label, small=False)
            given = whole.algorithm.options
            assert given.items() >= theirs.items(), (column.name, label)
            met.add((module, column.name, label))
    assert len(met) == 2 * sum(len(columns(name)) for name in TABLES[:4])


def test_settings_of_one_method_alone_are_distinguished():
    """The authors' commands for CIFAR-100's SCAFFOLD and Tiny-ImageNet's FedProx."""
    experiment_of = load("protocol").experiment_of
    cifar, *_, tiny = columns("table2")
    for column, label, names, ours, theirs in (
        (cifar, "SCAFFOLD", ("rounds", "lr_decay"), (500, 0.999), (390, 0.9)),
        (tiny, "FedProx", ("rounds", "lr"), (500, 0.02), (500, 0.01)),
        (tiny, "FedAvg", ("rounds", "lr"), (500, 0.02), (500, 0.02)),
    ):
        for alone, wanted in ((False, ours), (True, theirs)):
            e = experiment_of(column, label, small=False, alone=alone)
            assert tuple(config.to_json(e)[name] for name in names) == wanted
    small = experiment_of(cifar, "SCAFFOLD", small=True, alone=True)
    assert (small.rounds, small.lr_decay) == (6, 0.9)


def test_published_numbers_are_the_papers():
    protocol, published = load("protocol"), load("shared.published")
    (column,) = (c for c in columns("table1") if c.name == "MNIST-K100")
    wanted = {**column.published, "metric": "top1_acc_pct"}
    known = published.published(protocol.PUBLISHED, wanted)
    assert known["SuPerFed-LM"] == (99.31, 1.09)
    start = {"table": "T5", "setting": "L/R=0.2", "metric": "top1_acc_pct"}
    both = published.published(protocol.PUBLISHED, start)
    assert both["SuPerFed-MM"] == (92.67, 4.04)  # the paper's, not the slides'


def rows(means, model="personal", chosen=""):
    return [
        {
            "seed": seed, "round": at, "evaluated": model, "lambda": chosen,
            "split": split, "metric": metric, "mean": mean / (2 - at // 10), "std": 0.1,
        }
        for seed, mean in enumerate(means)
        for at in (5, 10)
        for split in ("test", "validation")
        for metric in ("accuracy", "loss")
    ]  # fmt: skip


def test_cells_are_means_over_seeds_after_the_last_round():
    published = load("shared.published")
    found = rows((0.5, 0.7)) + rows((0.8, 0.8), "mixture", "oracle")
    known = ("mixture", "oracle"), (90.0, 3.0)
    first, second = published.cells(found, "C", "M", "accuracy", *known)
    assert (first.model, first.published, first.mean) == ("mixture oracle", 90, 80)
    assert (second.model, second.seeds, second.rounds) == ("personal", 2, 10)
    assert second.mean == pytest.approx(60)
    assert second.over_seeds == pytest.approx(np.std((50, 70), ddof=1))
    assert second.over_clients == pytest.approx(10)
    assert np.isnan(second.published)


@pytest.mark.slow
def test_the_table_has_both_ranks_and_kendalls_tau(tmp_path):
    published = load("shared.published")
    values = {"A": (90.0, 0.9), "B": (80.0, 0.95), "C": (70.0, 0.5), "D": (60.0, 0.4)}
    found = [
        cell
        for name, (theirs, ours) in values.items()
        for cell in published.cells(
            rows((ours, ours)), "K", name, "accuracy", ("personal", ""), (theirs, 1.0)
        )
    ]
    text = published.write(tmp_path, found)
    assert "| B | personal | 80.00 ± 1.00 | 95.00 ± 10.00 | 0.00 | 2 | 2, 1 |" in text
    assert "Kendall's tau of the rankings: 0.67" in text  # 5 of 6 pairs agree
    assert (tmp_path / "accuracy.png").stat().st_size > 1000
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 5
    losses = [cell._replace(metric="loss") for cell in found]
    assert "| B | personal | 80.00 ± 1.00 | 95.00 ± 10.00 | 0.00 | 2 | 3, 4 |" in (
        published.markdown(losses)
    )


def test_a_row_of_superfed_has_the_codes_errors_and_the_data_of_its_run(tmp_path):
    protocol = load("protocol")
    (column,) = (c for c in columns("table5") if c.name == "start-0.2")
    given = protocol.experiment_of(column, "SuPerFed-MM", small=True)
    (tmp_path / "sweep.json").write_text(
        json.dumps({"experiment": config.to_dict(given), "over": {"seed": [0]}})
    )
    known = rows((0.4,), "mixture", "oracle")
    (tmp_path / "greatest").mkdir()
    of_code = [r for r in rows((0.6,), "mixture", "superfed-code") if r["round"] == 10]
    (tmp_path / "greatest" / "0.json").write_text(json.dumps({"rows": of_code}))
    with open(tmp_path / "sweep.csv", "w", newline="") as file:
        names = load("shared.swept").COLUMNS
        writer = csv.DictWriter(file, ["seed", *names, *FIGURES])
        writer.writeheader()
        writer.writerows(known)
    metrics = load("table5").METRICS
    found = protocol.measured(tmp_path, column, "SuPerFed-MM", metrics)
    shown = {(c.metric, c.model): c for c in found}
    first = shown["accuracy", "mixture oracle"]
    assert (first.mean, first.published) == (40, 92.67)
    assert (first.data, first.published_on) == ("mnist", "cifar10:size=28")
    assert shown["loss", "mixture superfed-code"].mean == 0.6
    assert np.isnan(shown["loss", "mixture oracle"].published)
    assert np.isfinite(shown["loss", "mixture superfed-code"].published)


def test_table_5_ranks_the_starts_of_each_method():
    table, published = load("table5"), load("shared.published")
    cells = []
    for i, share in enumerate(range(5)):
        made = rows((0.5 + 0.1 * i,))
        evaluated = ("personal", ""), (90.0 - (i == 4) * 5 + i, 1.0)
        name = f"start-{share}"
        cells += published.cells(made, name, "SuPerFed-MM", "accuracy", *evaluated)
    text = table.along(cells).splitlines()
    assert text[1:] == ["SuPerFed-MM, accuracy: 0.20"]  # 6 of 10 pairs agree


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_method_is_tuned_with_nine_points(scale):
    tuned, protocol = load("tuned"), load("protocol")
    assert list(tuned.GRID) == list(protocol.METHODS)
    for tried in tuned.GRID.values():
        base = tuned.SCALES[scale].replace(
            algorithm=Component(tried.algorithm, tried.hyper), **tried.settings
        )
        made = points.combine({"lr": tried.rates, **tried.own})
        assert len(made) == 9
        for values in made:
            checks.check(points.set_values(base, values))
