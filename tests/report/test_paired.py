"""Which method is better, from synthetic run folders."""

import json

import numpy as np
import pytest
from scipy import stats

from pfljax.report import formats, paired_files
from pfljax.report.columns import COLUMNS
from pfljax.report.groups import group_runs
from pfljax.report.paired import paired
from pfljax.report.paired_words import in_words, p_text
from pfljax.report.pairing import against_best, pair
from pfljax.report.runs import read_run
from pfljax.report.tables import comparison_table

KEY = "personal/test/accuracy"


def table_of(folders):
    return comparison_table(group_runs(map(read_run, folders)))


def row_of(table, method):
    return next(row for row in table.rows if row.method == method)


@pytest.fixture(scope="module")
def result(comparison_folders):
    return paired([table_of(comparison_folders)])


def comparison_of(result, *methods):
    [found] = [c for c in result.comparisons if {c.method, c.against} == set(methods)]
    return found


def test_the_best_and_local_training_are_held_against_all(result):
    got = [(c.method, c.against) for c in result.comparisons]
    best = [("SuPerFed-MM", other) for other in ("ditto", "fedper", "local only")]
    best += [("SuPerFed-MM", "FedAvg")]
    rest = [("ditto", "local only"), ("fedper", "local only"), ("local only", "FedAvg")]
    assert got == [*best, *rest]


def test_numbers_by_hand_from_the_arrays(result, comparison_folders):
    last = {}
    for folder in comparison_folders:
        with np.load(folder / "per_client.npz") as arrays:
            last[folder.name] = arrays[KEY][-1].astype(float)
    ours, theirs = (
        np.array([last[f"{name}{seed}"] for seed in range(3)])
        for name in ("ditto", "local")
    )
    values = comparison_of(result, "ditto", "local only").values
    by_seed = (ours - theirs).mean(axis=1)
    assert values["difference"] == pytest.approx(by_seed.mean())
    assert values["low"] < by_seed.mean() < values["high"]
    p = stats.ttest_rel(ours.mean(axis=1), theirs.mean(axis=1)).pvalue
    assert values["p"] == pytest.approx(p, rel=1e-4)
    assert values["p_wilcoxon"] == 0.25  # the least of three seeds
    win, lose = np.sum(ours > theirs), np.sum(ours < theirs)
    assert (values["win"], values["tie"], values["lose"]) == (win, 0, lose)
    # Clients are the same in all seeds: a client's ranks stay together.
    sizes = stats.rankdata(np.abs(ours - theirs), axis=1)
    sums = (np.sign(ours - theirs) * sizes).sum(axis=0)
    p = 2 * stats.norm.sf(abs(sums.sum()) / np.sqrt((sums**2).sum()))
    pairing = comparison_of(result, "ditto", "local only").pair
    assert pairing.p_clients == pytest.approx(p, rel=1e-4)


@pytest.mark.parametrize("with_best", [True, False])
def test_holm_is_over_the_rows_with_the_best_and_over_the_others(result, with_best):
    family = [c.values for c in result.comparisons if c.with_best == with_best]
    ordered = sorted(family, key=lambda values: values["p"])
    least = 0
    for factor, values in zip(range(len(ordered), 0, -1), ordered, strict=True):
        least = min(1, max(least, factor * values["p"]))
        assert values["p_holm"] == pytest.approx(least)


def test_a_line_in_words_for_each(result):
    lines = "\n".join(result.lines)
    assert len(result.lines) == len(result.comparisons) == 7
    values = comparison_of(result, "ditto", "local only").values
    ends = f"[{100 * values['low']:.1f}, {100 * values['high']:.1f}]"
    said = f"ditto is ahead of local only by {100 * values['difference']:.1f} points"
    sure = f"p {p_text(values['p_holm'])} after Holm, three seeds of 20 clients each: "
    counts = f"{values['win']} win, {values['tie']} tie, {values['lose']} lose"
    assert f"{said} {ends}, {sure}{counts}." in lines
    assert "in brackets the 95 % interval of each, on its own" in result.key
    assert "SuPerFed-MM cannot be told from ditto: 3.1 points [" in lines


@pytest.mark.parametrize(
    ("p", "text"), [(0.00099, "below .001"), (0.0042, "= .004"), (0.213, "= .21")]
)
def test_a_p_in_words(p, text):
    assert p_text(p) == text


def test_a_phone_sees_the_difference_and_p_first(result):
    keys = [column.key for column in result.table.columns]
    assert keys[:4] == ["difference", "p_holm", "low", "high"]
    own = "It is of one comparison alone"
    assert own in result.note
    assert own not in result.table.caption


def test_seeds_of_unequal_clients_are_counted_in_all(result):
    comparison = result.comparisons[0]
    fewer = comparison.pair.clients[0][:18]
    pair = comparison.pair._replace(clients=(fewer, *comparison.pair.clients[1:]))
    line = in_words(comparison._replace(pair=pair))
    assert "three seeds of 58 clients in all: " in line


def test_one_seed_is_told_by_its_clients(comparison_folders):
    folders = [folder for folder in comparison_folders if folder.name.endswith("0")]
    table = table_of(folders)
    result = paired([table])
    comparison = comparison_of(result, "SuPerFed-MM", "FedAvg")
    assert np.isnan(comparison.values["p"])
    sure = "after Holm by clients alone, one seed of 20 clients: 20 win, 0 tie, 0 lose"
    assert sure in result.lines[3]
    assert "Of one seed nothing can be said of another" in result.note
    assert "p_wilcoxon" not in [column.key for column in result.table.columns]
    bold = [row for row in formats.cells(table) if row[2].mark in ("best", "alike")]
    assert {row[0].text for row in bold} == {"SuPerFed-MM", "ditto", "fedper"}


def change_manifest(folder, **change):
    manifest = json.loads((folder / "partition.json").read_text())
    (folder / "partition.json").write_text(json.dumps(manifest | change))


def test_runs_of_other_clients_or_data_are_no_pair(make_run, tmp_path):
    folders = [make_run(tmp_path / name, name, 0) for name in ("ditto", "local")]
    change_manifest(folders[1], sha256="cd" * 32)
    table = table_of(folders)
    message = (
        "ditto and local of seed 0 have other clients or rows (SHA-256 abababab and "
        "cdcdcdcd): no pair is of the same; run both on one data set, partition and "
        "seed"
    )
    with pytest.raises(ValueError, match="other clients or rows") as refusal:
        pair(row_of(table, "ditto"), row_of(table, "local"))
    assert str(refusal.value) == message
    refused = paired([table])
    assert refused.lines == (f"Not compared: {message}.",)
    assert paired_files.answer(refused) == f"- Not compared: {message}.\n"


def test_runs_of_other_seeds_are_no_pair(make_run, tmp_path):
    folders = [
        make_run(tmp_path / "a", "ditto", 0),
        make_run(tmp_path / "b", "local", 1),
    ]
    table = table_of(folders)
    with pytest.raises(ValueError, match="run both with the same seeds"):
        pair(row_of(table, "ditto"), row_of(table, "local"))


def test_seeds_that_one_alone_has_are_left_out(make_run, tmp_path):
    folders = [make_run(tmp_path / f"d{seed}", "ditto", seed) for seed in (0, 1, 2)]
    folders += [make_run(tmp_path / f"l{seed}", "local", seed) for seed in (2, 0)]
    table = table_of(folders)
    differences = pair(row_of(table, "ditto"), row_of(table, "local"))
    assert differences.seeds == (0, 2)
    means = [row_of(table, name).values["accuracy"] for name in ("ditto", "local")]
    np.testing.assert_allclose(differences.means, means[0][[0, 2]] - means[1])


def test_one_seeds_clients_are_corrected_apart(make_run, tmp_path):
    folders = [
        make_run(tmp_path / f"{name}{seed}", name, seed)
        for name in ("ditto", "local", "fedper")
        for seed in (0, 1, 2)
    ]
    before = paired([table_of(folders)]).comparisons
    # Much like the best: its p is large, and would weigh on those of the others.
    like_it = make_run(tmp_path / "like", "fedper", 2, label="like fedper")
    folders.append(like_it)
    after = paired([table_of(folders)]).comparisons
    of_one_seed = [c for c in after if len(c.pair.seeds) == 1]
    assert of_one_seed
    known = {(c.method, c.against): c.values["p_holm"] for c in after}
    for comparison in before:
        p = known[comparison.method, comparison.against]
        assert p == comparison.values["p_holm"]
    # What is bold goes by the same families.
    accuracy = COLUMNS[0]
    rows = list(table_of(folders[:-1]).rows)
    longer = list(table_of(folders).rows)
    p = dict(
        zip([r.method for r in longer], against_best(longer, accuracy), strict=True)
    )
    for row, alone in zip(rows, against_best(rows, accuracy), strict=True):
        np.testing.assert_equal(p[row.method], alone)


def test_fedavg_with_finetuning_is_a_baseline(make_run, tmp_path):
    folders = [
        make_run(tmp_path / f"{name}{finetune}", name, hyper={"finetune": finetune})
        for name, finetune in (("fedavg", 0), ("fedavg", 20), ("ditto", 5))
    ]
    rows = table_of(folders).rows
    assert {row.method for row in rows if row.baseline} == {"fedavg (finetune=20)"}


def test_comparisons_of_before_do_not_stay(result, tmp_path):
    paired_files.write_paired(result, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    paired_files.write_paired(paired([]), tmp_path)
    assert not list(tmp_path.iterdir())
