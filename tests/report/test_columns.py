"""The table by columns, the choice on validation examples, and figures of a sweep."""

import numpy as np
import pytest

from pfljax.report import columns, markup, overview, pairs, sweeps, tables
from pfljax.report.lead import EMPTY, make_lead
from pfljax.report.seeds import group_runs
from pfljax.report.tidy import main_means, tidy
from pfljax.runs.result import result

LEAD = make_lead("accuracy")
METHODS = ("fedper", "ditto")
ALPHAS = (0.01, 0.1, 10.0)


@pytest.fixture(scope="module")
def swept(comparison_folders):
    """Groups of two methods by alpha, as if they had been swept, and their table."""
    runs = []
    for folder in comparison_folders:
        for alpha in ALPHAS:
            run = result(folder)
            if run.experiment.algorithm.name in METHODS:
                name = run.experiment.algorithm.name
                partition = f"dirichlet:alpha={alpha:g}"
                run.__dict__["experiment"] = run.experiment.replace(
                    partition=partition, label=f"{name} partition={partition}"
                )
                run.__dict__["label"] = run.experiment.label
                runs.append(run)
    groups = group_runs(runs)
    return groups, tidy(groups)


def test_a_column_is_compared_by_itself(swept):
    groups, frame = swept
    table = columns.columns_table(groups, frame, "partition")
    assert [row[0] for row in table.rows] == ["fedper", "ditto"]
    assert table.header[1:] == [f"dirichlet:alpha={a:g}" for a in ALPHAS]
    means = main_means(frame)
    fedper = 100 * np.array([*means[groups[0].label].values()])
    text = f"{fedper.mean():.2f} ± {fedper.std(ddof=1):.2f}"
    assert table.rows[0][1].rstrip("*") == text
    assert "n = 3 seeds" in table.note
    assert table.best
    assert r"\textbf" in markup.latex(table)
    # As when each column is a comparison of its own.
    first = [g for g in groups if str(g.experiment.partition).endswith("0.01")]
    scores = [pairs.make_scores(g, means[g.label], LEAD) for g in first]
    compared, _ = pairs.compare(scores)
    is_alike = bool(compared.p_holm[0] >= 0.05)
    assert is_alike == any(row[1].endswith("*") for row in table.rows)


def test_rows_and_columns_are_in_the_order_of_the_sweep(swept):
    groups, frame = swept
    over = {
        "algorithm": ["ditto", "fedper"],
        "partition": [f"dirichlet:alpha={alpha:g}" for alpha in ALPHAS[::-1]],
    }
    table = columns.columns_table(groups, frame, "partition", over)
    assert [row[0] for row in table.rows] == over["algorithm"]
    assert table.header[1:] == over["partition"]


def test_marks_say_what_cannot_be_told_from_the_best():
    rng = np.random.default_rng(0)

    def scores(method, mean, seeds=3):
        clients = {s: mean + 0.02 * rng.standard_normal(40) for s in range(seeds)}
        means = {seed: float(values.mean()) for seed, values in clients.items()}
        return pairs.Scores(method, means, clients, dict.fromkeys(clients, "data"))

    given = [scores("a", 0.9), scores("b", 0.899, seeds=2), scores("c", 0.5)]
    cells = columns._compare([*given, pairs.Scores("lost", {})], "v", LEAD)
    marks = {method: cell.mark for method, cell in cells.items()}
    assert marks == {"a": "best", "b": "alike", "c": "", "lost": ""}
    assert columns._text(cells["b"], 3, LEAD).endswith(" (n = 2)*")
    assert columns._text(cells["lost"], 3, LEAD) == EMPTY
    tied = columns._compare([given[0], given[0]._replace(method="d")], "v", LEAD)
    assert [cell.mark for cell in tied.values()] == ["best", "best"]
    with pytest.raises(ValueError, match="two methods are called 'a' at v"):
        columns._compare([given[0], given[0]], "v", LEAD)


def test_what_is_no_axis_of_the_runs_is_refused(swept):
    with pytest.raises(ValueError, match="over which the table takes means"):
        columns.columns_table(*swept, "seed")
    with pytest.raises(ValueError, match="all runs have rounds="):
        columns.columns_table(*swept, "rounds")
    with pytest.raises(ValueError, match="unknown setting or option 'alhpa'"):
        columns.columns_table(*swept, "alhpa")


def test_the_columns_of_a_sweep_are_those_of_its_data():
    over = {"algorithm": ["a", "b"], "partition": ["c", "d"]}
    assert sweeps.default_columns(over) == "partition"
    assert sweeps.default_columns({"partition": ["c", "d"]}) is None
    assert sweeps.default_columns(over | {"noise": ["e", "f"]}) is None


def test_validation_examples_choose_and_test_examples_judge(swept):
    _, frame = swept
    rows = frame[frame.main & frame["last"] & (frame.metric == "accuracy")].copy()
    names = list(rows.method.unique())
    for at, name in enumerate(names):
        own = (rows.method == name) & (rows.clients == "all")
        rows.loc[own & (rows.split == "validation"), "mean"] = 0.5 + 0.01 * at
        rows.loc[own & (rows.split == "test"), "mean"] = 0.6 - 0.01 * at
    (text,) = overview.choose_on_validation(rows)
    last = len(names) - 1
    assert f"choose {names[-1]} ({50 + last:.2f} % on them)" in text
    assert f"reaches {60 - last:.2f} % on test" in text
    rows.loc[rows.method == names[-1], "diverged"] = True
    assert f"choose {names[-2]} " in overview.choose_on_validation(rows)[0]


def test_a_method_that_diverged_is_last_and_never_the_best(swept):
    groups, frame = swept
    name = groups[0].label
    lost = frame.copy()
    lost.loc[lost.method == name, "diverged"] = True
    assert name not in main_means(lost)
    scores = [
        pairs.make_scores(g, main_means(lost).get(g.label, {}), LEAD) for g in groups
    ]
    compared, _ = pairs.compare(scores)
    methods = overview.average_seeds(lost, compared[compared.with_best.eq(True)])
    assert methods.index[-1] == name
    assert not methods.is_alike.iloc[-1]
    assert f"Diverged: {name}." in overview.overview_table(methods, LEAD).note
    table = tables.make_table(
        "", tables.values_by_seed(lost), tables.list_columns(LEAD)
    )
    (row,) = (row for row in table.rows if row[0] == name)
    assert set(row[2:-2]) == {EMPTY}
    assert len({row[2] for row in table.rows}) > 1


def test_each_part_is_compared_with_the_full_method(swept):
    groups, frame = swept
    labels = ["full", "without momentum", "without lr"]
    chosen = [group for group in groups if group.label.startswith("ditto")]
    for group, label in zip(chosen, labels, strict=True):
        for run in group.runs:
            run.__dict__["label"] = label
    table = sweeps._without_table(chosen, frame)
    assert [row[0] for row in table.rows] == labels
    means = main_means(frame)
    full, other = (
        100 * np.array([*means[group.label].values()]) for group in chosen[:2]
    )
    assert table.rows[0][1] == f"{full.mean():.2f}"
    assert table.rows[1][2] == f"{(other - full).mean():+.2f}"
    assert float(table.rows[1][4]) <= (other - full).mean() + 0.01
    assert sweeps._without_table(groups[:1], frame) is None


def test_figures_are_over_the_numbers_and_two_axes(swept):
    groups, frame = swept
    over = {"algorithm": list(METHODS), "alpha": list(ALPHAS)}
    relabelled = []
    for group in groups:
        alpha = group.experiment.partition.options["alpha"]
        method = group.experiment.algorithm
        for run in group.runs:
            run.__dict__["experiment"] = run.experiment.replace(lr=alpha)
            run.__dict__["label"] = f"{method.name} lr={alpha:g}"
        relabelled.append(group)
    drawn = sweeps.figures(
        relabelled, frame, {"algorithm": over["algorithm"], "lr": ALPHAS}
    )
    (axes,) = drawn["accuracy"].axes
    assert axes.get_xscale() == "log"
    lines = {line.get_label(): tuple(line.get_xdata()) for line in axes.lines}
    assert lines == dict.fromkeys(METHODS, ALPHAS)
    cells = drawn["accuracy_map"].axes[0]
    assert len(cells.texts) == 6
    assert [text.get_text() for text in cells.get_yticklabels()] == sorted(METHODS)
    assert sweeps.figures(groups, frame, {"algorithm": over["algorithm"]}) == {}
    zero = sweeps._set_scale(axes, [0.0, 0.01, 1.0])
    assert list(zero.values()) == [0.0, 1.0, 2.0]
